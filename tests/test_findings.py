"""What docs/findings says of least D and exponents is what the committed tables say."""

import re

import pandas as pd
import pytest
from markdown_tables import rows_below

from config.identity import ROOT

FINDINGS = (ROOT / "docs/findings.md").read_text()
OVERNIGHT = (ROOT / "docs/findings/overnight.md").read_text()
MODELS = ["Standard", "Linear", "Sparse"]
MARKS = {"yes": "†", "unknown": "?", "no": ""}
MAIN_ROWS = {"overnight": ["Arithmetic", "ED", "LIS"], "table2_below": ["Arithmetic"]}


def table(experiment, name):
    path = ROOT / f"results/{experiment}/figures/{name}.csv"
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def least_dim(row):
    """The D of a row of least_dim_table.csv as the findings write it."""
    if row["state"] == "not run":
        return "–"
    if row["state"] != "reached":
        return f"> {row['largest_dim']}"
    unknown_below = row["bound"] == "yes" or not row["below"]
    return f"{'≤ ' if unknown_below else ''}{row['dim']}{MARKS[row['limited_by_budget']]}"


def told_in_findings():
    """The findings' main table: experiment, task, lengths, and per model its list of D."""
    rows = rows_below(FINDINGS, "Least D on the grid")
    for task, lengths, *models, _ in rows:
        name, sizes = task.split(",", 1)
        yield "table2_below" if "20,000 steps" in sizes else "overnight", name, lengths, models


@pytest.mark.parametrize("told", list(told_in_findings()), ids=lambda told: "-".join(told[:2]))
def test_the_main_table_has_the_least_dims_of_the_committed_tables(told):
    experiment, task, lengths, models = told
    rows = table(experiment, "least_dim_table")
    rows = rows[rows["task"] == task]
    for model, cell in zip(MODELS, models, strict=True):
        part = rows[(rows["model"] == model) & rows["max_len"].isin(lengths.split(", "))]
        assert ", ".join(part["max_len"]) == lengths
        expected = [least_dim(row) for _, row in part.iterrows()]
        assert (model, cell.replace(" ", "")) == (model, ", ".join(expected).replace(" ", ""))


def test_the_main_table_has_every_task():
    assert [(experiment, task) for experiment, task, *_ in told_in_findings()] == [
        (experiment, task) for experiment, tasks in MAIN_ROWS.items() for task in tasks
    ]


def told_in_overnight():
    """The table of findings/overnight.md: length, model, its cell."""
    for _, length, *models in rows_below(OVERNIGHT, "## Least D"):
        yield from ((length, model, cell) for model, cell in zip(MODELS, models, strict=True))


def test_least_dims_with_what_lies_below_are_those_of_the_committed_table():
    rows = table("overnight", "least_dim_table")
    found = list(told_in_overnight())
    assert len(found) == len(rows)
    for length, model, cell in found:
        part = rows[(rows["max_len"] == length) & (rows["model"] == model)]
        expected = part[part["task"] == task_at(length)].iloc[0]
        dim = "" if expected["state"] == "not run" else least_dim(expected)
        given = re.sub(r"[*]|\(.*\)", "", cell)
        assert (length, model, bare(given)) == (length, model, bare(dim))
        if expected["accuracies_below"] and "runs" not in cell:
            below = re.search(r"\((.*)\)", cell).group(1).replace(",", "")
            assert (length, model, below) == (length, model, expected["accuracies_below"])


def bare(dim):
    """Without the sign before it: that table says in words where no smaller D has run."""
    return dim.replace(" ", "").removeprefix("≤")


def task_at(length):
    """The lengths of overnight's sizes are of one task each."""
    rows = table("overnight", "least_dim_table")
    (task,) = set(rows[rows["max_len"] == length]["task"])
    return task


def test_the_exponents_are_those_of_the_committed_table():
    # a row of its own for each theory
    rows = table("overnight", "exponents").drop_duplicates(["task", "model"])
    rows = rows.set_index(["task", "model"])
    for task, *models, _ in rows_below(OVERNIGHT, "## Growth with L"):
        for model, cell in zip(MODELS, models, strict=True):
            row = rows.loc[(task, model)]
            low, high = (f"{float(row[side]):.2f}".replace("inf", "∞") for side in ("low", "high"))
            expected = f"{float(row['exponent']):.2f} [{low}, {high}]"
            assert (task, model, cell.replace("−", "-")) == (task, model, expected)


CLAIMS = {cells[0]: cells[2] for cells in rows_below(FINDINGS, "## The paper's claims")}


def claim(start):
    """What is measured beside the one claim of the paper that begins so."""
    (measured,) = [text for name, text in CLAIMS.items() if name.startswith(start)]
    return measured


def test_the_claims_have_the_exponents_of_the_growth_table():
    told = re.findall(r"\d\.\d\d \[.*?\]", claim("Table 1: linear's D grows"))
    rows = rows_below(OVERNIGHT, "## Growth with L")
    assert told == [row[1 + MODELS.index(model)] for model in MODELS[1:] for row in rows]


def test_the_ratios_over_standard_attention_are_those_of_the_least_dims():
    rows = table("overnight", "least_dim_table")
    rows["place"] = rows["max_len"].astype(int)
    told = OVERNIGHT.split("**Over standard attention's D**")[1].split("\n")[0]
    for model, text in zip(
        MODELS[1:], re.findall(r"(?:linear|sparse) ([\d.,;>≤ ]+)", told)[-2:], strict=True
    ):
        expected = [
            ", ".join(
                over_standard(rows[rows["max_len"] == length].set_index("model"), model)
                for length in part.sort_values("place")["max_len"].unique()
            )
            for _, part in rows.groupby("task")
        ]
        assert (model, text.strip(" ,;.")) == (model, "; ".join(expected))


def over_standard(row, model):
    """A least D over standard attention's, as overnight.md writes it."""
    standard, other = row.loc["Standard"], row.loc[model]
    if other["state"] != "reached":
        return f"> {int(other['largest_dim']) / int(standard['dim']):.2g}"
    unknown_below = other["bound"] == "yes"
    sign = "≤ " if unknown_below else ""
    return f"{sign}{int(other['dim']) / int(standard['dim']):.2g}"


def test_how_many_reach_95_percent_is_what_the_table_counts():
    rows = pd.read_csv(ROOT / "results/overnight/results.csv")
    groups = ["task", "size", "model"]
    medians = rows.groupby([*groups, "dim", "recipe.learning_rate"])["answer_accuracy"].median()
    best = medians.groupby(groups).max()
    told = f"{(best >= 0.95).sum()} of"
    assert f"{told} {len(best)} combinations" in claim("Section 6: with enough D")
    assert f"{told} the {len(best)} combinations" in OVERNIGHT
    paragraph = OVERNIGHT.split("**Near 100 %.**")[1].split("\n")[0]
    for accuracy in best[best < 0.95]:
        assert f"{100 * accuracy:.1f}" in paragraph


def test_what_linear_attention_saves_at_an_equal_dim_is_what_the_tables_count():
    told = re.search(
        r"at D = 32 linear attention takes ([\d, and]+) % fewer total FLOPs", OVERNIGHT
    )
    rows = pd.concat(
        pd.read_csv(ROOT / f"results/{name}/results.csv") for name in ("overnight", "table2_below")
    )
    wide = rows[(rows["task"] == "arithmetic") & (rows["dim"] == 32)].drop_duplicates(
        ["model", "max_len"]
    )
    flops = wide.pivot(index="max_len", columns="model", values="flops_total")
    saved = (100 * (1 - flops["linear"] / flops["standard"])).dropna()
    found = dict(zip((25, 41, 85, 221, 365), re.findall(r"\d+", told.group(1)), strict=True))
    assert {length: f"{saved[length]:.0f}" for length in found} == found


NUMBERS = "none one two three four five six seven eight nine ten eleven".split()
COUNTS = [
    ("state |", "Linear", "bytes of state", "at all, beyond the grid at {cheaper}"),
    ("state |", "Sparse", "bytes of state", "beyond the grid at {cheaper}"),
    ("tokens a second", "Linear", "time a token in batches",
     "%), undecided at {open}, "),
    ("seconds an answer", "Linear", "time an answer", "more at {dearer}, undecided at {open}"),
    ("total FLOPs", "Linear", "total FLOPs", "at {dearer} beyond the grid"),
    ("total FLOPs", "Sparse", "total FLOPs", "at {dearer} beyond the grid"),
    ("training FLOPs", "Linear", "training FLOPs", "fewer at {cheaper} of {sizes}"),
    ("training FLOPs", "Sparse", "training FLOPs", "fewer at {cheaper} of {sizes}"),
    ("training core-seconds", "Linear", "training core-seconds", "fewer at {cheaper} of {sizes}"),
    ("training core-seconds", "Sparse", "training core-seconds", "fewer at {cheaper} of {sizes}"),
]  # fmt: skip


@pytest.mark.parametrize(("start", "model", "currency", "told"), COUNTS)
def test_at_how_many_sizes_a_model_saves_is_what_the_table_counts(start, model, currency, told):
    path = ROOT / "results/overnight/figures/savings_summary.md"
    header, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in path.read_text().splitlines()
        if line.startswith("| ")
    )
    (row,) = [row for row in rows if row[:2] == [model, currency]]
    counts = {name: NUMBERS[int(row[header.index(name)])] for name in header[2:6]}
    (line,) = [
        cells
        for cells in rows_below(OVERNIGHT, "## Cost at the least D")
        if f"{' | '.join(cells)} |".startswith(start)
    ]
    assert told.format(**counts) in line[1 + ["Linear", "Sparse"].index(model)]


def with_mark(row):
    """The D of a row of required_dimension.csv with its mark, "" where none has run."""
    if row["state"] == "not run":
        return ""
    if row["state"] != "reached":
        return f"> {float(row['below']):.0f}"
    return f"{float(row['dim']):.0f}{MARKS[row['limited_by_budget']]}"


def test_the_least_dims_of_ed_and_ed_local_are_those_of_the_committed_table():
    rows = table("overnight_local", "required_dimension")
    told = rows_below(OVERNIGHT, "## Locality")
    for name, length, _, *models in told:
        task = name.split(",")[0]
        for model, cell in zip(MODELS, models, strict=True):
            part = rows[(rows["task"] == task) & (rows["model"] == model)]
            (row,) = part[part["max_len"] == f"{length}.0"].to_dict("records")
            assert (name, model, re.sub(r"[*]|\s*\(.*", "", cell)) == (name, model, with_mark(row))
    measured = rows[(rows["task"] == "ED_Local") & (rows["state"] != "not run")]
    assert len(measured["size"].unique()) == sum(name.startswith("ED_Local") for name, *_ in told)


DEPTHS = [
    "Standard, 3 layers", "Standard, 5 layers", "Linear, 3 layers", "Linear, 5 layers",
    "Sparse, 3 layers, window of 1 block", "Sparse, 5 layers, window of 1 block",
    "Sparse, 3 layers, window of 2 blocks",
]  # fmt: skip


def test_the_least_dims_of_five_layers_are_those_of_the_committed_table():
    rows = table("overnight_depth", "required_dimension").set_index(["size", "model"])
    for size, _, *cells in rows_below(OVERNIGHT, "## Five layers"):
        for model, cell in zip(DEPTHS, cells, strict=True):
            expected = bare(with_mark(rows.loc[(size, model)]))
            assert (size, model, bare(cell)) == (size, model, expected)


def test_the_papers_own_sizes_have_the_accuracies_and_steps_of_the_table():
    tables = [f"results/{name}/results.csv" for name in ("table2_below", "table2")]
    rows = pd.concat(pd.read_csv(ROOT / name) for name in tables).drop_duplicates("cell")
    operators, seen = "", 0
    for first, _, model, *cells, _ in rows_below(OVERNIGHT, "## The paper's own sizes"):
        operators = first or operators
        part = rows[(rows["size"] == int(operators)) & (rows["model"] == model.split()[0])]
        for dim, cell in zip((16, 24, 32, 48, 64, 128, 256), cells, strict=True):
            found = [run_in_words(run) for run in part[part["dim"] == dim].itertuples()]
            seen += len(found)
            assert (operators, model, dim, re.sub("[*†]", "", cell)) == (
                operators, model, dim, "".join(found),
            )  # fmt: skip
    assert seen == len(rows)


def run_in_words(run):
    """The right answers in percent; from 90 on with the steps to 90 % of the validation chains."""
    steps = "" if pd.isna(run.steps_to_90) else f" ({run.steps_to_90:,.0f})"
    return f"{100 * run.answer_accuracy:.1f}{steps}"


STATE = (ROOT / "docs/findings/state.md").read_text()


@pytest.mark.parametrize(
    ("heading", "task", "model"),
    [
        ("## Arithmetic", "arithmetic", "linear"),
        ("**Control.**", "arithmetic", "standard"),
        ("## Edit distance", "ed", "linear"),
        ("**Sparse attention**", "arithmetic", "sparse"),
    ],
)
def test_accuracies_and_bytes_by_heads_are_those_of_the_table(heading, task, model):
    rows = pd.read_csv(ROOT / "results/heads/results.csv").sort_values("seed")
    rows = rows[(rows["task"] == task) & (rows["model"] == model) & (rows["status"] == "done")]
    told = rows_below(STATE, heading)
    assert len(told) >= 2
    for dim, *cells in told:
        for heads, cell in zip((1, 2, 4, 8), cells, strict=True):
            part = rows[(rows["dim"] == int(dim)) & (rows["heads"] == heads)]
            (size,) = set(part["state_bytes"].astype(int))
            accuracies = ", ".join(f"{100 * value:.0f}" for value in part["answer_accuracy"])
            assert (dim, heads, cell) == (dim, heads, f"{accuracies} ({size:,})")
