"""The frontier: launches are stubbed, accuracies a function of D, seed and rate."""

import contextlib
import json
import math
from types import SimpleNamespace

import pandas as pd
import pytest
from commands import TINY
from hypothesis import given, settings
from hypothesis import strategies as st

import sweep as program
from common import UserError
from config.build import check_buildable
from config.columns import described, resolved
from config.grid import cells, experiment_from, planned
from plots.cells import gather
from plots.frontier import requirements_of
from records.provenance import now
from sweeps.frontier import DIVERGED, candidates, search, standing, write_frontier
from sweeps.least_dim import THRESHOLD, Run, median_reaches
from sweeps.plan import Planned, Sweep

DIMS = [16, 24, 32, 48, 64, 96, 128]  # half octaves
ALL = {(seed, factor) for seed in (0, 1, 2) for factor in (0.5, 1, 2)}
OWN_RATE = {(seed, 1) for seed in (0, 1, 2)}
accuracies = st.lists(st.floats(0, 1), min_size=1, max_size=len(DIMS))


def experiment(dims=DIMS, seeds=(0,), confirm=True, **grid):
    grid = {"model.dim": list(dims), "seed": list(seeds), **grid}
    plain = {"description": "x", "grid": [grid], "confirm": confirm}
    return experiment_from("made_up", plain)


def which(cell):
    """Return a cell as (D, seed, multiple of the recipe's rate)."""
    config = cell.config
    return config.model.dim, config.seed, config.recipe.learning_rate / 0.01


class MadeUpSweep(Sweep):
    """A sweep in memory: a cell has the accuracy that ``truth(dim, seed, factor)`` returns.

    A text instead of a number is the reason why the cell fails.
    """

    def __init__(self, truth, dims=DIMS, seeds=(0,), confirm=True, results_dir="no such folder"):
        self.truth = truth
        self.outcomes = {}
        self.launches = []
        super().__init__(experiment(dims, seeds, confirm), results_dir, "no such folder")

    def table(self):
        rows = {c: v for c, v in self.outcomes.items() if not isinstance(v, str)}
        return pd.DataFrame(
            {"cell": rows.keys(), "status": "done", "answer_accuracy": rows.values()}
        )

    def enter(self):
        return self.table()

    def _stand(self, cell, rows):
        outcome = self.outcomes.get(cell.name)
        if isinstance(outcome, str):
            return Planned(cell, self.folders[cell.name], "failed", outcome)
        return Planned(cell, self.folders[cell.name], "missing" if outcome is None else "done")

    def launch(self, chosen):
        self.launches.append({which(one.cell) for one in chosen})
        for one in chosen:
            assert one.cell.name in self.folders
            self.outcomes[one.cell.name] = self.truth(*which(one.cell))

    @property
    def launched(self):
        return set().union(*self.launches)

    def at(self, dim):
        """Return the seeds and rates that were launched at one D."""
        return {(seed, factor) for d, seed, factor in self.launched if d == dim}


def by_dim(shares):
    return lambda dim, seed, factor: shares[DIMS.index(dim)]


def solve(truth, **more):
    sweep = MadeUpSweep(truth, **more)
    (group,) = search(sweep, sweep.launch)
    return sweep, group


@settings(deadline=None)
@given(shares=accuracies.map(sorted))
def test_bisection_finds_what_filling_the_grid_would(shares):
    sweep, group = solve(by_dim(shares), dims=DIMS[: len(shares)], confirm=False)
    reaching = [dim for dim, share in zip(DIMS, shares, strict=False) if share >= THRESHOLD]
    assert group.solved and group.monotone
    assert group.least_dim == min(reaching, default=None)
    assert len(sweep.launched) <= math.ceil(math.log2(len(shares) + 1))
    for (how, reaches), share in zip(group.verdicts(), shares, strict=True):
        assert how in ("measured", "inferred")
        assert reaches == (share >= THRESHOLD)
    assert [how for how, _ in group.verdicts()].count("measured") == len(sweep.launched)


@settings(deadline=None)
@given(shares=accuracies, known=st.sets(st.integers(0, len(DIMS) - 1)))
def test_any_accuracies_end_between_a_measured_miss_and_a_measured_hit(shares, known):
    sweep = MadeUpSweep(by_dim(shares), dims=DIMS[: len(shares)], confirm=False)
    sweep.launch([p for place, p in enumerate(sweep.plan()) if place in known])
    (group,) = search(sweep, sweep.launch)
    assert group.solved
    if group.high < len(shares):
        assert shares[group.high] >= THRESHOLD and group.widths[group.high].first.accuracy
    if group.low >= 0:
        below = group.widths[group.low].first.accuracy
        assert below is not None and below < THRESHOLD


def test_without_confirmation_a_failed_cell_leaves_its_group_open_and_the_others_go_on():
    shares = {16: 0.1, 24: 0.2, 32: "no memory", 48: 0.99}
    sweep = MadeUpSweep(lambda dim, *_: shares[dim], DIMS[:4], seeds=(0, 1), confirm=False)
    found = search(sweep, sweep.launch)
    assert [group.solved for group in found] == [False, False]
    assert all("D=32 is failed (no memory)" in group.outcome() for group in found)
    assert [group.least_dim for group in found] == [None, None]
    assert sweep.launches == [{(dim, 0, 1), (dim, 1, 1)} for dim in (24, 32)]
    for group in found:
        assert [how for how, _ in group.verdicts()] == [
            "inferred",
            "measured",
            "unknown",
            "unknown",
        ]


def test_the_found_d_is_confirmed_by_seeds_and_the_one_below_by_rates_as_well():
    sweep, group = solve(lambda dim, seed, factor: 0.97 if dim >= 48 else 0.4)
    assert sweep.launches[:3] == [{(48, 0, 1)}, {(24, 0, 1)}, {(32, 0, 1)}]
    assert len(sweep.launches) == 4
    assert sweep.at(48) == OWN_RATE and sweep.at(32) == ALL and sweep.at(24) == {(0, 1)}
    assert group.least_dim == 48 and group.interval == (48, 48)
    assert group.outcome() == "least D 48"
    hows = ["inferred", "measured", "measured", "measured", "inferred", "inferred", "inferred"]
    assert [how for how, _ in group.verdicts()] == hows


def test_seeds_alone_confirm_at_the_rate_of_the_experiment():
    sweep, group = solve(lambda dim, seed, factor: 0.97 if dim >= 48 else 0.4, confirm="seeds")
    assert sweep.at(48) == sweep.at(32) == OWN_RATE and sweep.at(24) == {(0, 1)}
    assert group.outcome() == "least D 48"
    sweep, group = solve(lambda dim, seed, _: 0.97 * (dim >= 64 or seed == 0), confirm="seeds")
    assert group.least_dim == 64 and group.interval == (16, 64)


def test_a_second_search_launches_nothing():
    for truth in (
        lambda dim, seed, factor: 0.97 if dim >= 48 else 0.4,
        lambda dim, seed, factor: 0.97 if dim >= 48 or (dim, factor) == (32, 0.5) else 0.4,
        lambda dim, seed, factor: 0.97 if dim >= 64 or (dim >= 24 and seed == 0) else 0.4,
    ):
        sweep, group = solve(truth)
        again = MadeUpSweep(truth)
        again.outcomes = sweep.outcomes
        (same,) = search(again, again.launch)
        assert again.launches == []
        assert same.least_dim == group.least_dim is not None
        assert len(again.cells) == len(sweep.cells) > len(again.grid_cells)


def test_a_lucky_seed_at_the_found_d_sends_the_search_one_step_up():
    sweep, group = solve(lambda dim, seed, factor: 0.97 if dim >= 48 or seed == 0 else 0.4)
    assert group.least_dim == 48
    assert sweep.at(48) == OWN_RATE and sweep.at(32) == ALL
    assert group.interval == (16, 48)
    assert group.outcome() == "least D 48 (single seeds and rates: 16 to 48)"


def test_a_lucky_seed_at_the_d_below_leaves_the_frontier_and_widens_the_interval():
    sweep, group = solve(
        lambda dim, seed, factor: 0.97 if dim >= 48 or (dim, seed) == (32, 2) else 0
    )
    assert group.least_dim == 48 and group.interval == (32, 48)
    assert sweep.at(24) == {(0, 1)}


def test_an_unlucky_seed_at_the_found_d_is_told_in_the_interval():
    _, group = solve(lambda dim, seed, factor: 0.97 if dim >= 48 and (dim, seed) != (48, 1) else 0)
    assert group.least_dim == 48 and group.interval == (48, 64)


def test_an_unlucky_first_seed_at_the_d_below_sends_the_search_one_step_down():
    sweep, group = solve(
        lambda dim, seed, factor: 0.97 if dim >= 32 and (dim, seed) != (32, 0) else 0
    )
    assert group.least_dim == 32 and group.interval == (32, 48)
    assert sweep.at(32) == sweep.at(24) == ALL


@pytest.mark.parametrize("factor", [0.5, 2])
def test_a_rate_that_rescues_the_d_below_sends_the_search_down_until_it_stands(factor):
    sweep, group = solve(
        lambda dim, seed, rate: 0.97 if dim >= (24 if rate == factor else 64) else 0
    )
    assert group.least_dim == 24 and group.interval == (24, 24)
    assert sweep.at(48) == sweep.at(32) == sweep.at(24) == sweep.at(16) == ALL
    assert sweep.at(64) == OWN_RATE and sweep.at(96) == {(0, 1)} and sweep.at(128) == set()
    assert [reaches for _, reaches in group.verdicts()] == [False] + 6 * [True]


def test_one_seed_at_another_rate_rescues_nothing():
    _, group = solve(lambda dim, *run: 0.97 if dim >= 48 or (dim, *run) == (32, 1, 2) else 0)
    assert group.least_dim == 48 and group.interval == (32, 48)


def test_what_no_median_reaches_is_more_than_the_last_d():
    sweep, group = solve(lambda dim, seed, factor: 0.97 if (dim, seed) == (128, 0) else 0)
    assert group.solved and group.least_dim is None
    assert group.outcome() == "more than D 128 (single seeds and rates: 128 to more than 128)"
    assert sweep.at(128) == ALL
    assert solve(lambda *_: 0.1)[1].outcome() == "more than D 128"


def test_what_the_first_d_reaches_needs_nothing_below():
    sweep, group = solve(lambda *_: 0.95)
    assert group.outcome() == "least D 16"
    assert sweep.at(16) == OWN_RATE and sweep.at(24) == {(0, 1)}


def test_a_wider_model_that_falls_short_is_said():
    shares = {16: 0.2, 24: 0.95, 32: 0.95, 48: 0.5}
    sweep = MadeUpSweep(lambda dim, *_: shares[dim], DIMS[:4])
    sweep.launch(sweep.plan())
    (group,) = search(sweep, sweep.launch)
    assert group.least_dim == 24 and group.interval == (24, None)
    assert group.outcome().endswith("not monotone, a wider one falls short")


def test_a_diverged_run_misses_the_threshold():
    """At twice the rate nothing trains; that is an answer, not a gap."""

    def truth(dim, seed, factor):
        return f"{DIVERGED}: loss nan within 9 steps" if factor == 2 else 0.97 * (dim >= 48)

    sweep, group = solve(truth)
    assert group.least_dim == 48 and sweep.at(32) == ALL
    assert group.widths[2].reaches is False


def test_a_diverged_first_run_leaves_its_group_open():
    _, group = solve(lambda dim, *_: DIVERGED if dim == 32 else 0.97 * (dim >= 48))
    assert group.outcome() == f"open: D=32 is failed ({DIVERGED})"


def test_a_failed_run_leaves_open_what_its_median_hangs_on_and_nothing_else():
    def truth(dim, seed, factor, *failing):
        return "no memory" if (dim, seed, factor) in failing else 0.97 * (dim >= 48)

    sweep, group = solve(lambda *run: truth(*run, (32, 1, 0.5), (48, 2, 1)))
    assert group.least_dim == 48
    sweep, group = solve(lambda *run: truth(*run, (32, 1, 0.5), (32, 2, 0.5)))
    assert group.least_dim is None and not group.solved
    assert group.outcome() == "open: D=32 seed=1 rate=0.005 is failed (no memory)"
    assert sweep.at(48) == OWN_RATE and sweep.at(32) == ALL


def test_the_seeds_of_the_grid_are_those_that_confirm():
    """They make one group; with confirm=false each has a frontier of its own."""
    sweep, group = solve(lambda dim, *_: 0.97 * (dim >= 48), seeds=(7, 5))
    assert {seed for _, seed, _ in sweep.launched} == {7, 5, 0}
    assert sweep.launches[0] == {(48, 7, 1)} and group.least_dim == 48
    more, _ = solve(lambda dim, *_: 0.97 * (dim >= 48), seeds=(0, 1, 2, 3, 4))
    assert {seed for seed, _ in more.at(48)} == {0, 1, 2, 3, 4}
    several = MadeUpSweep(lambda dim, *_: 0.97 * (dim >= 48), seeds=(7, 5), confirm=False)
    assert len(search(several, several.launch)) == 2


def test_groups_differ_in_anything_but_the_width():
    grid = {"task.size": [4, 3], "recipe.learning_rate": [0.01, 0.005]}
    sweep = MadeUpSweep(lambda *_: 0.95)
    sweep.__class__.__base__.__init__(sweep, experiment([32, 16], **grid), "none", "none")
    found = search(sweep, sweep.launch)
    assert [group.dims for group in found] == 4 * [[16, 32]]
    assert [group.least_dim for group in found] == 4 * [16]


@st.composite
def made_up_truths(draw):
    shares = draw(
        st.lists(
            st.one_of(st.floats(0, 1), st.sampled_from([0.2, 0.95, "no memory", DIVERGED])),
            min_size=len(DIMS) * 9,
            max_size=len(DIMS) * 9,
        )
    )
    runs = [(dim, seed, factor) for dim in DIMS for seed in (0, 1, 2) for factor in (0.5, 1, 2)]
    return dict(zip(runs, shares, strict=True))


def misses_by_median(truth, dim, factor):
    return (
        sum(
            value == DIVERGED or (not isinstance(value, str) and value < THRESHOLD)
            for (d, _, f), value in truth.items()
            if (d, f) == (dim, factor)
        )
        >= 2
    )


def reaches_by_median(truth, dim, factor):
    return (
        sum(
            not isinstance(value, str) and value >= THRESHOLD
            for (d, _, f), value in truth.items()
            if (d, f) == (dim, factor)
        )
        >= 2
    )


@settings(deadline=None)
@given(truth=made_up_truths())
def test_whatever_is_measured_the_search_ends_and_its_frontier_holds(truth):
    sweep, group = solve(lambda *run: truth[run])
    assert sum(map(len, sweep.launches)) == len(sweep.launched)  # none twice
    if not group.solved:
        assert any(isinstance(truth[run], str) for run in sweep.launched)
        return
    if group.high < len(DIMS):
        assert sweep.at(DIMS[group.high]) >= OWN_RATE
        assert any(reaches_by_median(truth, DIMS[group.high], factor) for factor in (0.5, 1, 2))
    if group.high > 0:
        below = DIMS[group.high - 1]
        assert all(misses_by_median(truth, below, factor) for factor in (0.5, 1, 2))
        assert sweep.at(below) == ALL
    lowest, highest = group.interval
    if group.least_dim is not None:
        assert lowest <= group.least_dim and (highest is None or group.least_dim <= highest)


@given(st.lists(st.sampled_from([None, 0.2, 0.95]), min_size=1, max_size=5))
def test_a_median_is_known_once_the_unknown_seeds_cannot_turn_it(shares):
    def all_known(fill):
        reaching = sorted((fill if share is None else share) >= THRESHOLD for share in shares)
        return reaching[(len(shares) - 1) // 2]

    pessimist, optimist = all_known(0.0), all_known(1.0)
    expected = pessimist if pessimist == optimist else None
    assert median_reaches([Run(None, share) for share in shares]) is expected


def test_the_file_says_what_was_measured_and_what_inferred(tmp_path):
    def truth(dim, seed, factor):
        if factor == 2:
            return DIVERGED
        return {16: 0.1, 24: 0.2, 32: 0.5 + 0.1 * seed, 48: 0.95 + 0.01 * seed}.get(dim, 0.99)

    _, group = solve(truth)
    write_frontier([group], tmp_path / "frontier.csv")
    rows = pd.read_csv(tmp_path / "frontier.csv").set_index("dim")
    assert rows.index.tolist() == DIMS
    assert rows["how"].tolist() == ["inferred", *3 * ["measured"], *3 * ["inferred"]]
    assert rows["reaches"].tolist() == [False] * 3 + [True] * 4
    for column in ("least_dim", "least_dim_low", "least_dim_high"):
        assert rows[column].tolist() == 7 * [48]
    assert pd.isna(rows["answer_accuracy"][16]) and pd.isna(rows["seeds"][16])
    shares = rows[["answer_accuracy", "answer_accuracy_min", "answer_accuracy_max"]]
    assert shares.loc[32].tolist() == [0.6, 0.5, 0.7]
    assert shares.loc[48].tolist() == [0.96, 0.95, 0.97]
    assert rows["seeds"][24] == "0" and rows["seeds"][32] == rows["seeds"][48] == "0 1 2"
    assert rows["rates"][32] == "0.005 0.01 0.02" and rows["rates"][48] == "0.01"
    assert rows["best_rate"][48] == 0.01 and rows["seed"].tolist() == 7 * [0]


def test_the_file_tells_groups_apart_by_whatever_varies(tmp_path):
    sweep = MadeUpSweep(lambda *_: 0.95)
    grid = {"model.position": ["sinusoidal", "none"]}
    Sweep.__init__(sweep, experiment([16, 24], **grid), "none", "none")
    write_frontier(search(sweep, sweep.launch), tmp_path / "frontier.csv")
    rows = pd.read_csv(tmp_path / "frontier.csv")
    assert rows["model.position"].tolist() == ["sinusoidal", "sinusoidal", "none", "none"]


def test_half_octaves_can_be_built():
    for model in ("standard", "linear", "sparse"):
        for cell in cells(experiment(model=[model]), ["model.num_heads=4"]):
            _, built = check_buildable(cell.config)
            assert built.dim == described(cell.config)["dim"]


def test_whether_to_confirm_is_true_false_or_seeds():
    with pytest.raises(UserError, match="confirm"):
        experiment(confirm="perhaps")
    assert experiment(confirm=False).confirm is False
    assert experiment(confirm="seeds").confirm == "seeds"


class StubLauncher:
    """Writes records as a cell would, of made-up accuracies; raises after ``limit`` cells."""

    def __init__(self, truth, limit=math.inf):
        self.truth, self.limit, self.launched = truth, limit, []

    def __call__(self, chosen):
        for one in chosen:
            if len(self.launched) >= self.limit:
                raise KeyboardInterrupt
            self.launched.append(which(one.cell))
            self.write(one.cell, one.folder)

    def write(self, cell, folder):
        config = cell.config
        folder.folder.mkdir(parents=True)
        folder.write_config(resolved(config))
        outcome = {"status": "done", "answer_accuracy": self.truth(*which(cell))}
        outcome |= {"flops_linear_layers": 1, "flops_total": 1}
        names = {"cell": cell.name, "weights": cell.weights}
        folder.write_record({**described(config), **names, **outcome, "finished_at": now()})


def kept_sweep(folder, confirm=True):
    made_up = experiment(DIMS[:4], confirm=confirm)
    return Sweep(made_up, str(folder / "results"), str(folder / "runs"))


def rescued(dim, seed, factor):
    return 0.97 if dim >= 48 or (dim >= 24 and factor == 0.5) else 0.3


def test_a_killed_search_goes_on(tmp_path):
    for limit in (2, 5, 4):
        with pytest.raises(KeyboardInterrupt):
            search(kept_sweep(tmp_path), StubLauncher(rescued, limit))
    (group,) = search(kept_sweep(tmp_path), last := StubLauncher(rescued))
    assert group.least_dim == 24 and group.interval == (24, 24) and last.launched
    again = kept_sweep(tmp_path)
    (same,) = search(again, nothing := StubLauncher(rescued))
    assert same.least_dim == 24 and nothing.launched == []


def test_extra_cells_are_cells_of_the_table(tmp_path):
    search(kept_sweep(tmp_path), StubLauncher(rescued))
    rows = pd.read_csv(tmp_path / "results/made_up/results.csv")
    runs = rows[["dim", "seed", "recipe.learning_rate"]].itertuples(index=False, name=None)
    expected = {(48, seed, 0.01) for seed in range(3)}
    expected |= {(d, s, rate) for d in DIMS[:3] for s in range(3) for rate in (0.005, 0.01, 0.02)}
    assert set(runs) == expected and len(rows) == 30


def test_figures_match_the_plan_with_a_table_that_holds_other_rates(tmp_path):
    search(kept_sweep(tmp_path), StubLauncher(rescued))
    table = pd.read_csv(tmp_path / "results/made_up/results.csv")
    plan = planned(experiment(DIMS[:4]), also=["recipe.learning_rate"])
    grid = gather(table.assign(max_len=10), plan)
    assert grid.model_rows == ["Standard"]
    assert set(grid.cells["seeds"]) == {3} and set(grid.cells["state"]) == {"done"}
    shown = dict(zip(grid.cells["dim"], grid.cells["accuracy"], strict=True))
    assert shown == pytest.approx({16: 0.3, 24: 0.3, 32: 0.3, 48: 0.97})  # at its own rate
    assert len(grid.trials) == 30 and int(grid.trials["own"].sum()) == 12
    assert any("18 at other learning rates" in note for note in grid.notes)


@pytest.mark.parametrize(
    "truth",
    [
        rescued,
        lambda dim, seed, factor: 0.97 if dim >= 48 or seed == 0 else 0.4,
        lambda dim, seed, factor: 0.97 if dim >= 32 and (dim, seed) != (48, 1) else 0.4,
        lambda dim, seed, factor: 0.4,
        lambda dim, seed, factor: 0.95,
    ],
)
def test_figures_find_the_least_d_that_the_search_found(tmp_path, truth):
    (group,) = search(kept_sweep(tmp_path), StubLauncher(truth))
    table = pd.read_csv(tmp_path / "results/made_up/results.csv").assign(max_len=10)
    plan = planned(experiment(DIMS[:4]), also=[name for name in table if "." in name])
    (item,) = requirements_of(gather(table, plan), "Arithmetic", "Standard")
    assert item.confirmed and item.dim == group.least_dim
    assert (item.low, item.high) == group.interval
    assert item.open_below == () and item.seeds == 3
    assert item.rates == (3 if item.below else 1)


@pytest.mark.parametrize("limit", range(1, 31))
def test_figures_draw_what_an_unfinished_search_knows(tmp_path, limit):
    """D = 48 reaches 90 % at the own rate, 24 at half of it: the line moves once a median does."""
    with contextlib.suppress(KeyboardInterrupt):
        search(kept_sweep(tmp_path), StubLauncher(rescued, limit))
    later = kept_sweep(tmp_path)
    trials = candidates(later)
    table = later.enter().assign(max_len=10)
    (group,) = standing(later, trials, table)
    plan = planned(experiment(DIMS[:4]), also=[name for name in table if "." in name])
    (item,) = requirements_of(gather(table, plan), "Arithmetic", "Standard")
    assert item.dim == (group.dims[group.high] if group.high < len(group.dims) else None)
    assert item.below == (group.dims[group.low] if group.low >= 0 else None)
    rates = table.get("recipe.learning_rate", 0.01 + 0 * table["seed"])
    further = table["seed"].ne(0) | rates.ne(0.01)
    assert item.searched == further.any() and group.solved == (limit == 30)
    if item.confirmed and rates.ne(0.01).any():
        assert group.solved and item.rates == 3


@pytest.mark.parametrize("seeds", [2, 3])
def test_figures_say_how_many_rates_confirm(tmp_path, seeds):
    """A search that seeds alone confirm is at its end with three of them, and no earlier."""
    sweep = kept_sweep(tmp_path, confirm="seeds")
    launcher = StubLauncher(lambda dim, seed, factor: 0.97 if dim >= 48 else 0.4)
    search(sweep, launcher)
    table = pd.read_csv(tmp_path / "results/made_up/results.csv").assign(max_len=10)
    table = table[table["seed"] < seeds]
    plan = planned(experiment(DIMS[:4]), also=[name for name in table if "." in name])
    (item,) = requirements_of(gather(table, plan), "Arithmetic", "Standard")
    assert (item.dim, item.searched, item.confirmed) == (48, True, seeds == 3)
    assert item.evidence == ("median of 3 seeds, 1 rate" if seeds == 3 else "confirmation begun")


def test_a_search_of_which_nothing_succeeded_is_drawn(tmp_path):
    search(kept_sweep(tmp_path), StubLauncher(rescued))
    table = pd.read_csv(tmp_path / "results/made_up/results.csv").assign(max_len=10)
    measured = table.columns[table.columns.str.startswith("answer_accuracy")]
    table = table.assign(status="unfinished", **dict.fromkeys(measured, math.nan))
    plan = planned(experiment(DIMS[:4]), also=[name for name in table if "." in name])
    (item,) = requirements_of(gather(table, plan), "Arithmetic", "Standard")
    assert (item.state, item.seeds, item.confirmed) == ("no result", 0, False)


def test_status_sees_the_cells_that_a_search_has_begun(tmp_path):
    search(kept_sweep(tmp_path), StubLauncher(rescued))
    (tmp_path / "elsewhere").mkdir()
    other, watching = kept_sweep(tmp_path), kept_sweep(tmp_path / "elsewhere")
    assert len(other.plan()) == 4
    candidates(other)
    assert len(other.plan()) == 30
    candidates(watching)
    assert len(watching.plan()) == 4
    (tmp_path / "runs").rename(tmp_path / "elsewhere" / "runs")
    assert len(watching.plan()) == 30
    assert {one.status for one in watching.plan()} == {"done"}


def test_a_clone_with_the_table_alone_measures_nothing(tmp_path):
    search(kept_sweep(tmp_path), StubLauncher(rescued))
    (tmp_path / "runs").rename(tmp_path / "lost")
    (group,) = search(kept_sweep(tmp_path), nothing := StubLauncher(rescued))
    assert nothing.launched == [] and group.least_dim == 24


def test_a_sweep_with_the_frontier_strategy(command):
    """Three dims, none of which learns anything in four steps: two measured, one inferred."""
    words = (
        "task.size=2 model.num_layers=1 model.num_heads=2 recipe.steps=4 recipe.validate_every=2 "
        "data.train=300 data.validation=20 data.test=20"
    ).split()
    arguments = [
        "experiment=quick", "strategy=frontier", "only.model=linear", "only.seed=0", "logger=none",
        "plot=false",
        "overrides=[" + ",".join(f'"{word}"' for word in words) + "]",
    ]  # fmt: skip
    planned = command("sweep.py", *arguments, "dry_run=true")
    assert "the search 2 trainings" in planned.out
    assert "the confirmation 2 to 8 trainings" in planned.out
    outcome = command("sweep.py", *arguments, "experiment.confirm=false")
    assert outcome.status == 0, outcome.err
    assert "more than D 64" in outcome.out
    rows = pd.read_csv(command.folder / "results/quick/frontier.csv")
    assert rows["how"].value_counts().to_dict() == {"measured": 2, "inferred": 1}
    entered = pd.read_csv(command.folder / "results/quick/results.csv")
    assert set(entered["cell"]) == set(rows["cell"][rows["how"] == "measured"])
    (command.folder / "results/quick/results.csv").unlink()
    found = command("sweep.py", *arguments, "status=true")
    assert "depending on what is found: the confirmation 8 trainings" in found.out
    assert not (command.folder / "results/quick/results.csv").exists()

    confirmed = command("sweep.py", *arguments)
    assert confirmed.status == 0, confirmed.err
    assert "8 of 11 cells to run" in confirmed.out and "more than D 64" in confirmed.out
    assert "2 D measured in 10 cells, 1 inferred" in confirmed.out
    rows = pd.read_csv(command.folder / "results/quick/frontier.csv").set_index("dim")
    assert rows["rates"][64] == "0.005 0.01 0.02" and rows["seeds"][64] == "0 1 2"
    entered = pd.read_csv(command.folder / "results/quick/results.csv")
    assert len(entered) == 10 and set(entered["recipe.learning_rate"]) == {0.005, 0.01, 0.02}
    told = command("sweep.py", *arguments, "status=true")
    assert "quick: 11 cells: 10 done, 1 missing" in told.out
    assert "The search is at its end." in told.out

    unknown = command("sweep.py", "experiment=quick", "strategy=random")
    assert unknown.status == 2 and "strategy='random'" in unknown.line


def test_a_run_that_diverges_is_known_by_its_reason(command):
    wild = ["recipe.learning_rate=1e30", "recipe.warmup_steps=1", "recipe.gradient_clip=null"]
    assert command("train.py", *TINY, *wild).status == 1
    (record,) = command.folder.glob("runs/*/record.json")
    assert json.loads(record.read_text(encoding="utf-8"))["reason"].startswith(DIVERGED)


def test_max_hours_are_those_of_all_rounds_together(monkeypatch):
    clock, left = iter([0.0, 1800.0, 7200.0]), []

    def two_rounds(sweep, measure):
        measure([])
        measure([])
        return []

    monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(program, "launch", lambda sweep, chosen, hours: left.append(hours))
    monkeypatch.setattr(program, "sum_up_frontier", lambda sweep, found: None)
    monkeypatch.setattr(program.frontier, "search", two_rounds)
    sweep = MadeUpSweep(lambda *_: 0.95)
    program.run_frontier(sweep, SimpleNamespace(max_hours=1.0, plot=False))
    assert left == [0.5, 0.0]
