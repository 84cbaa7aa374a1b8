"""The tables of word problems, mixers, Match3 and recall are those of the committed results."""

import pandas as pd
from markdown_tables import rows_below

from config.identity import ROOT

SHOWN = {"standard": "standard", "linear": "linear", "sparse (k = 1)": "sparse", "tensor": "tensor"}


def text(name):
    return (ROOT / f"docs/findings/{name}.md").read_text().replace("*", "")


def results(experiment):
    rows = pd.read_csv(ROOT / f"results/{experiment}/results.csv")
    return rows[rows["status"] == "done"].sort_values("seed")


def percent(values, digits=1):
    return [f"{100 * value:.{digits}f}".replace("100.0", "100") for value in values]


def test_word_problems_without_a_chain_are_those_of_the_table():
    rows = results("tracking")
    told = rows_below(text("groups"), "Without one, right answers in percent")
    assert len(told) == 7
    columns = [(form, group) for form in ("direct", "tagged") for group in ("Z60", "A4xZ5", "A5")]
    for name, *cells in told[:-1]:
        model, _, position = name.partition(", ")
        own = rows[rows["model"] == SHOWN[model]]
        own = own[own["model.position"] == ("rope" if position else "sinusoidal")]
        for (form, group), cell in zip(columns, cells, strict=True):
            part = own[(own["format"] == form) & (own["task.monoid"] == group)]
            means = part.groupby("size")["answer_accuracy"].mean().reindex([12, 16, 24, 32])
            expected = " ".join(percent(means)).replace("nan", "–")
            assert (name, form, group, cell) == (name, form, group, expected)


def test_closure_is_that_of_the_table():
    rows = results("closure")
    told = rows_below(text("groups"), "## Closure")
    assert len(told) == 4
    columns = [
        (form, group) for form in ("cot", "direct") for group in ("A5", "A4xZ5", "Z60", "Z5")
    ]
    for name, *cells in told:
        own = rows[rows["model"] == SHOWN[name]]
        for (form, group), cell in zip(columns, cells, strict=True):
            part = own[(own["format"] == form) & (own["task.monoid"] == group)]
            expected = " ".join(percent(part["answer_accuracy"])) or "–"
            assert (name, form, group, cell) == (name, form, group, expected)


def test_the_least_dims_of_fifteen_mixers_are_those_of_the_table():
    rows = pd.read_csv(ROOT / "results/mixers/figures/least_dim_table.csv", dtype=str).fillna("")
    rows["model"] = rows["model"].str.lower()
    tasks = list(dict.fromkeys(rows["task"]))
    told = rows_below(text("mixers"), "Least D for 90 %")
    assert len(told) == rows["model"].nunique() == 15
    for name, *cells in told:
        name = name.lower().replace("four", "4").removesuffix(" (k = 1)")
        own = rows[rows["model"] == name].set_index("task")
        for task, cell in zip(tasks, cells, strict=True):
            row = own.loc[task]
            mark = "†" if row["limited_by_budget"] == "yes" else ""
            least = f"{float(row['dim'] or 0):.0f}{mark}"
            expected = least if row["state"] == "reached" else f"> {row['largest_dim']}"
            assert (name, task, cell) == (name, task, expected)


MATCH3 = {
    "tensor attention, scores over √K": ("tensor", 1, "sqrt"),
    "tensor attention, scores over K, the default": ("tensor", 1, "head_dim"),
    "tensor attention, kernelised": ("tensor_linear", 1, None),
    "ordinary attention": ("standard", 1, None),
    "ordinary attention, two layers": ("standard", 2, None),
    "linear attention, two layers": ("linear", 2, None),
}


def test_match3_is_that_of_the_table():
    rows, seen = results("match3"), 0
    for name, *cells in rows_below(text("match3"), "Is there a pair"):
        model, layers, scale = MATCH3[name]
        own = rows[(rows["model"] == model) & (rows["layers"] == layers)]
        own = own[own["model.mixer.scale"] == scale] if scale else own
        for dim, cell in zip((16, 32, 64), cells, strict=True):
            found = percent(own.loc[own["dim"] == dim, "answer_accuracy"])
            seen += len(found)
            assert (name, dim, cell) == (name, dim, ", ".join(found) or "–")
    assert seen == len(rows)


RECALL = (ROOT / "docs/recall.md").read_text().replace("*", "")
ATTENTION = {"attention": "standard", "linear": "linear", "DeltaNet": "delta_net"}


def test_recall_of_pairs_is_that_of_the_table():
    """In brackets sequences with all queries right, where below 99 % and beyond guessing."""
    rows = results("recall")
    rows = rows[rows["task"] == "mqar"]
    told, seen = rows_below(RECALL, "MQAR: right answers"), 0
    for name, *cells in told:
        model, _, without = name.partition(", ")
        own = rows[rows["model"] == ATTENTION[model]]
        own = own[own["model.mixer.convolution"].isna() == bool(without)]
        places = [(size, dim) for size in (4, 8, 16) for dim in (16, 32, 64)]
        for (size, dim), cell in zip(places, cells, strict=True):
            (row,) = own[(own["size"] == size) & (own["dim"] == dim)].itertuples()
            (answer, whole), seen = percent([row.answer_accuracy, row.chain_exact_match]), seen + 1
            bare, *bracket = cell.rstrip(")").split(" (")
            assert (name, size, dim, bare) == (name, size, dim, answer)
            assert bracket in ([], [whole]) and (bracket or float(whole) >= 99 or without)
    assert seen == len(rows)


def test_copies_are_those_of_the_table():
    rows = results("recall")
    rows = rows[rows["task"] == "copy"].set_index(["model", "size"])["answer_accuracy"]
    told = rows_below(RECALL, "Copies at D = 16")
    for name, *cells in told:
        assert (name, cells) == (name, percent(rows[ATTENTION[name]].loc[[10, 20, 40]]))
    assert 3 * len(told) == len(rows)
