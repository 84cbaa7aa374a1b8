"""The numbers of docs/findings.md and README are those of the tables in results/.

`python tests/test_findings.py` writes the generated tables into the page again.
"""

import re
from pathlib import Path

import pandas as pd
import pytest

from plots.costs import METRICS, ratios
from plots.d90_by_task import matrix
from plots.data import load_experiment, of_groups, read_speeds, read_table
from plots.tables import markdown

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/findings.md"
TEXT, README = (path.read_text(encoding="utf-8") for path in (PAGE, ROOT / "README.md"))
OVERNIGHT = ROOT / "results/overnight"
FACETS = load_experiment("overnight", None, OVERNIGHT).facets


def d90_table():
    return markdown(matrix(of_groups(read_table(OVERNIGHT), FACETS))).strip()


def less(model, metric):
    """How many times less than standard attention the model costs, by size."""
    found = ratios(read_table(OVERNIGHT), read_speeds(OVERNIGHT), FACETS)
    return found.loc[(found["model"] == model) & (found["metric"] == metric), "less"]


def costs_table():
    lines = ["| cost | linear | saves at | sparse | saves at |", "|---|---|---|---|---|"]
    for name, metric in METRICS.items():
        words = [metric.label]
        for values in (less("linear", name), less("sparse", name)):
            words.append(f"{1 / values.max():.2g} to {1 / values.min():.2g} times")
            words.append(f"{(values > 1.001).sum()} of {len(values)} sizes")
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines)


TABLES = {"d90": d90_table, "costs": costs_table}


@pytest.mark.parametrize("name", TABLES)
def test_table_is_what_the_results_give(name):
    assert f"<!-- {name} -->\n\n{TABLES[name]()}\n\n<!-- end -->" in TEXT


def test_headline():
    table = of_groups(read_table(OVERNIGHT), FACETS)
    dims = table.set_index(["task", "size", "model"])["d90"].unstack()
    times = (dims["linear"] / dims["standard"]).dropna()
    width, sizes = f"{times.min():.0f} to {times.max():.1f} times", f"{len(times)} of {len(dims)}"
    assert f"{width} standard attention's D, at {sizes} sizes" in TEXT
    assert f"**{width}** standard attention's embedding dimension D at {sizes}" in README
    state, flops = less("linear", "state"), less("linear", "flops")
    assert f"{state.min():.1f} to {state.max():.0f} times smaller" in TEXT
    assert f"**{state.min():.1f} to {state.max():.0f} times** smaller" in README
    for page in (TEXT, README.replace("**", "")):
        assert f"{1 / flops.max():.2f} to {1 / flops.min():.1f} times the FLOPs" in page
    assert f"only {(flops > 1.001).sum()} sizes save any" in README


def test_erasing():
    """At these sizes attention to the last lines reaches 90 % at a smaller D than both others."""
    table = read_table(ROOT / "results" / "erase")
    dims = of_groups(table, {"only": {"recipe.learning_rate": 0.01}})
    dims = dims.set_index(["size", "model"])["d90"].unstack().dropna()
    own, other = dims["last_lines"].max(), dims[["standard", "linear"]].min(axis=None)
    assert own < other
    for page in (TEXT, README):
        assert f"D = {own:.0f}" in page


def test_limits():
    edges = [of_groups(read_table(ROOT / "results" / name), FACETS).query("low > 0")
             for name in ("overnight", "heads", "mixers")]  # fmt: skip
    seeds = pd.concat(edges).query("model == 'standard' and seeds >= 3")
    missed, trained = (1 - seeds["success"]) @ seeds["seeds"], seeds["seeds"].sum()
    assert f"{missed:.0f} of {trained} standard-attention runs" in TEXT
    assert f"{edges[0]['still_improving'].sum()} of {len(edges[0])} cases" in TEXT


if __name__ == "__main__":
    for name, table in TABLES.items():
        found = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        TEXT = found.sub(lambda m, table=table: f"{m[1]}\n{table()}\n\n{m[2]}", TEXT)
    PAGE.write_text(TEXT, encoding="utf-8")
