import math

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from config.grid import cells, experiment_from
from sweeps.frontier import THRESHOLD, Group, groups, search, write_frontier
from sweeps.plan import Planned

DIMS = [8, 16, 24, 32, 48, 64, 96, 128]
accuracies = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def planned_cells(dims, seeds=(0,)):
    grid = [{"model.dim": list(dims), "seed": list(seeds)}]
    experiment = experiment_from("made_up", {"description": "x", "grid": grid})
    return [Planned(cell, None, "missing") for cell in cells(experiment)]


class MadeUpSweep:
    """A sweep whose cells have the accuracies that they are given, once launched."""

    def __init__(self, accuracies, failing=(), seeds=(0,)):
        self.cells = planned_cells(DIMS[: len(accuracies)], seeds)
        self.truth = {p.cell.name: accuracies[DIMS.index(_dim(p))] for p in self.cells}
        self.failing = failing
        self.measured: list[str] = []

    def plan(self):
        return self.cells

    def enter(self):
        rows = {"cell": self.measured, "status": "done"}
        return pd.DataFrame({**rows, "answer_accuracy": [self.truth[c] for c in self.measured]})

    def to_launch(self, plan):
        return [p for p in plan if p.status == "missing"]

    def launch(self, chosen):
        for planned in chosen:
            if _dim(planned) in self.failing:
                planned.status, planned.reason = "failed", "diverged"
            else:
                planned.status = "done"
                self.measured.append(planned.cell.name)


def _dim(planned):
    return planned.cell.config.model.dim


@settings(deadline=None)
@given(shares=accuracies.map(sorted))
def test_bisection_finds_what_filling_the_grid_would(shares):
    sweep = MadeUpSweep(shares)
    (group,) = search(sweep, sweep.launch)
    reaching = [dim for dim, share in zip(DIMS, shares, strict=False) if share >= THRESHOLD]
    assert group.solved and group.monotone
    assert group.least_dim == min(reaching, default=None)
    assert len(sweep.measured) <= math.ceil(math.log2(len(shares) + 1))
    for (how, reaches), share in zip(group.verdicts(), shares, strict=True):
        assert how in ("measured", "inferred")
        assert reaches == (share >= THRESHOLD)
    assert [how for how, _ in group.verdicts()].count("measured") == len(sweep.measured)


@settings(deadline=None)
@given(shares=accuracies, known=st.sets(st.integers(0, 7)))
def test_any_accuracies_end_between_a_measured_miss_and_a_measured_hit(shares, known):
    sweep = MadeUpSweep(shares)
    sweep.launch([p for place, p in enumerate(sweep.cells) if place in known])
    (group,) = search(sweep, sweep.launch)
    assert group.solved
    if group.high < len(shares):
        assert shares[group.high] >= THRESHOLD and group.accuracy[group.high] is not None
    if group.low >= 0:
        assert shares[group.low] < THRESHOLD and group.accuracy[group.low] is not None


def test_a_failed_cell_leaves_its_group_open_and_the_others_go_on():
    sweep = MadeUpSweep([0.1, 0.2, 0.95, 0.99], failing=[24], seeds=(0, 1))
    sweep.failing = [24]
    found = search(sweep, sweep.launch)
    assert [group.solved for group in found] == [False, False]
    assert all("D=24 is failed (diverged)" in group.outcome() for group in found)
    how = [how for how, _ in found[0].verdicts()]
    assert how == ["inferred", "measured", "unknown", "unknown"]


def test_a_wider_model_that_falls_short_is_said():
    plan = planned_cells([8, 16, 32])
    group = Group(plan, [0.2, 0.95, 0.5])
    assert group.least_dim == 16 and "not monotone" in group.outcome()
    assert Group(plan, [None, None, 0.3]).outcome() == "more than D 32"


def test_groups_differ_in_anything_but_the_width():
    plan = planned_cells([16, 8], seeds=(0, 1))
    found = groups(plan, {})
    assert [group.dims for group in found] == [[8, 16], [8, 16]]


def test_the_file_says_what_was_measured_and_what_inferred(tmp_path):
    plan = planned_cells([8, 16, 32])
    write_frontier([Group(plan, [None, 0.4, 0.96])], tmp_path / "frontier.csv")
    rows = pd.read_csv(tmp_path / "frontier.csv")
    assert rows["how"].tolist() == ["inferred", "measured", "measured"]
    assert rows["reaches"].tolist() == [False, False, True]
    assert rows["least_dim"].tolist() == [32, 32, 32]
    assert pd.isna(rows["answer_accuracy"][0])


def test_a_sweep_with_the_frontier_strategy(command):
    """Three dims, none of which learns anything in four steps: two measured, one inferred."""
    words = (
        "task.size=2 model.num_layers=1 model.num_heads=2 recipe.steps=4 recipe.validate_every=2 "
        "data.train=300 data.validation=20 data.test=20"
    ).split()
    outcome = command(
        "sweep.py", "experiment=quick", "strategy=frontier", "only.model=linear", "logger=none",
        "plot=false", "overrides=[" + ",".join(f'"{word}"' for word in words) + "]",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    assert "more than D 64" in outcome.out
    rows = pd.read_csv(command.folder / "results/quick/frontier.csv")
    assert rows["how"].value_counts().to_dict() == {"measured": 2, "inferred": 1}
    entered = pd.read_csv(command.folder / "results/quick/results.csv")
    assert set(entered["cell"]) == set(rows["cell"][rows["how"] == "measured"])
    unknown = command("sweep.py", "experiment=quick", "strategy=random")
    assert unknown.status == 2 and "strategy=random" in unknown.line
