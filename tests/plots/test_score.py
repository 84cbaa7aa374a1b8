"""A model's score: the geometric mean over all tasks of its D90 over standard attention's."""

import pytest
from processes import ROOT

from experiments.grid import Experiment, load_experiment
from experiments.table import read_table
from plots import tables
from plots.score import brackets, frame, headline, score, scores, scores_of
from tests.plots.small_tables import cells, joined

EASY = cells({8: [0.1], 16: [0.95]}, model="mine")
STANDARD = joined(
    cells({8: [0.1], 16: [0.95], 32: [1.0]}), cells({8: [0.1], 16: [0.2], 32: [1.0]}, task="copy")
)


def scores_beside(own, published=STANDARD):
    return scores(own, published)


def both_tasks(accuracies, model, **columns):
    return [cells(accuracies, task=task, model=model, **columns) for task in ("lis", "copy")]


def scored(*tables):
    return score(brackets(joined(STANDARD, *tables)), "mine")


def test_score_is_the_geometric_mean_of_the_ratios():
    found = scored(EASY, EASY.assign(task="copy"))
    assert found.score == pytest.approx(2**-0.5)
    assert found.low < found.score < found.high < 1.2


def test_a_failed_task_counts_as_twice_the_largest_dim():
    failed = scored(EASY, cells({8: [0.1], 16: [0.5], 32: [0.8]}, task="copy", model="mine"))
    crashed = cells({8: [0.1], 32: [0.1]}, task="copy", model="mine", status="failed")
    assert scored(EASY, crashed).score == failed.score == pytest.approx(2**0.5)


def scorable_models(*tables):
    return {row["name"] for row in scores_beside(joined(STANDARD, EASY, *tables)).rows}


def test_a_model_that_has_not_finished_every_task_has_no_score():
    hard = {8: [0.1], 16: [0.5], 32: [0.8]}
    assert scorable_models(cells(hard, task="copy", model="mine")) == {"standard", "mine"}
    crashed = cells(hard, task="copy", model="mine", status="failed")
    assert scorable_models(crashed) == {"standard", "mine"}
    stopped = cells({8: [0.1], 16: [0.5]}, task="copy", model="mine")
    unfinished = cells(hard, task="copy", model="mine", status="unfinished")
    for tables_ in ([], [stopped], [unfinished]):
        assert scorable_models(*tables_) == {"standard"}


def test_a_model_in_two_settings_has_no_score():
    both = [EASY.assign(task="copy"), *both_tasks({8: [0.95]}, "mine", layers=5)]
    assert scorable_models(*both) == {"standard"}
    monoids = [EASY.assign(task="copy", **{"task.monoid": name}) for name in ("A5", "Z60")]
    assert scorable_models(*monoids) == {"standard"}


def test_sizes_from_the_same_training_run_are_not_independent():
    two = [cells({8: [0.1], 16: [0.95]}, size=size, model=model)
           for size in (4, 5) for model in ("standard", "mine")]  # fmt: skip
    one = [table for table in two if (table["size"] == 4).all()]
    spread = [score(brackets(joined(*tables_)), "mine") for tables_ in (one, two)]
    assert spread[0] == pytest.approx(spread[1])


def test_page_shows_unpublished_models_in_bold_next_to_references():
    mine = joined(*both_tasks({8: [0.1], 16: [0.5], 32: [0.7]}, "mine", train_seconds=7200.0))
    published = joined(STANDARD, *both_tasks({16: [0.1], 32: [0.95]}, "linear"))
    table = joined(STANDARD, mine)
    given = scores_beside(table, published)
    found = frame(given).set_index("model")
    assert found.index.tolist() == ["Standard", "Linear", "mine"]
    assert found.loc["mine", "LIS, 4 numbers"] == "70 %" and found.loc["mine", "passed"] == "0/2"
    assert (found.loc["mine", ["training time (×)", "time per step (×)"]] == 2).all()
    printed = tables.markdown(tables.printed(found.reset_index()))
    assert "| **mine** |" in printed and "| Linear |" in printed
    assert set(given.table["model"]) == {"standard", "mine", "linear"}
    assert frame(given, {"standard", "linear"})["model"].tolist() == ["Standard", "Linear"]
    assert headline(given, {"mine"}).startswith("mine scores 2.83 (")
    unfinished = cells({16: [0.1]}, model="linear")  # you started a reference again: it is left out
    again = scores_beside(joined(table, unfinished), published)
    names = [row["name"] for row in again.rows]
    assert names == ["standard", "mine"] and set(again.table["model"]) == set(names)


def test_a_model_without_a_score_is_listed_with_the_reason():
    given = scores_beside(joined(STANDARD, EASY))
    found = frame(given).set_index("model")
    assert found.loc["mine", "passed"] == "no score: ran 1 of 2 tasks"
    assert headline(given, {"mine"}) == "mine has no score: ran 1 of 2 tasks."
    part = scores_beside(joined(STANDARD[STANDARD["task"] == "lis"], EASY))
    said = "mine has no score: standard attention ran 1 of 2 tasks."
    assert headline(part, {"mine"}) == said


def test_references_are_models_with_the_same_settings():
    """Models are compared only if your standard attention ran published cells."""
    suite, published = load_experiment("suite"), read_table(ROOT / "results" / "suite")
    own = published[published["model"] == "standard"]
    same = scores_of(suite, own)
    assert {"standard", "linear"} <= set(same.table["model"]) and not same.yours
    assert not headline(same, {"standard"})
    other = scores_of(suite, own.assign(cell=own["cell"] + "x"))
    assert set(other.table["model"]) == {"standard"}
    assert "ran with other settings" in headline(other, {"standard"})
    mine = scores_of(Experiment("mine", "", []), STANDARD)  # its tasks can be anywhere
    assert [row["passed"] for row in mine.rows] == ["2/2"]


@pytest.mark.parametrize(
    ("dim", "accuracy", "expected"),
    [(16, 0.95, [4, 16, True]), (4, 0.95, [2, 4, True]), (64, 0.5, [64, 128, False])],
)
def test_brackets_end_at_half_the_smallest_and_twice_the_largest_dim(dim, accuracy, expected):
    """Of standard attention (8 to 32) and the model, which ran one D of one task."""
    found = brackets(joined(STANDARD, cells({dim: [accuracy]}, model="mine")))
    found = found.set_index(["model", "task"])[["low", "high", "is_bound"]]
    assert found.loc[("mine", "lis")].tolist() == expected
    assert found.loc[("mine", "copy")].tolist() == [32, 64, False]
