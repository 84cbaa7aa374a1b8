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
    alone = (less("linear", "memory") > 1.001).sum()
    assert f"with the weights, at batch 1, only at {alone}." in README
    assert f"with the weights, at batch 1, it saves memory at {alone}." in TEXT
    assert f"{state.min():.1f} to {state.max():.0f} times smaller" in TEXT
    assert f"**{state.min():.1f} to {state.max():.0f} times** smaller" in README
    for page in (TEXT, README.replace("**", "")):
        assert f"{1 / flops.max():.2f} to {1 / flops.min():.1f} times the FLOPs" in page
    assert f"only {(flops > 1.001).sum()} sizes save any" in README


def test_erasing():
    """At D = 16, attention to the last two lines beside the others."""
    table = read_table(ROOT / "results" / "erase").query("dim == 16")
    shares = table.groupby(["model", "size"])["answer_accuracy"].median()
    four, six = (shares.xs(size, level="size") for size in (4, 6))
    own, standard, linear = (
        f"{100 * four[model]:.0f} and {100 * six[model]:.0f} %"
        for model in ("last_lines", "standard", "linear")
    )
    assert f"answers {own} of Arithmetic with 4 and 6 operators at D = 16" in TEXT
    assert f"standard attention {standard}, linear attention {linear}" in TEXT
    six = (100 * six).round().astype(int)
    assert (
        f"**{six['last_lines']} %** of 6-operator Arithmetic at D = 16, learning rate 0.01"
        in README
    )
    assert f"standard attention {six['standard']} %, linear {six['linear']} %" in README


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
