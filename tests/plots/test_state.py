"""Accuracy over D and over bytes: the shift of made-up curves is found, and what it decides."""

import dataclasses
import itertools

import made_up_tables as tables
import numpy as np
import pandas as pd
import pytest

from plots import state
from plots.cells import gather
from plots.crossing import Locations, locate
from plots.state_shift import Shifts, interval_text, predicted_slope, rows, shifts_of
from plots.untried import without_untried_values

DIMS = [16, 24, 32, 48, 64]
HEADS = [1, 2, 4, 8]
FACETS = {"columns": ["task"], "rows": ["model"], "x": "dim", "y": "heads"}
SCATTER = (-0.1, 0.0, 0.1)  # of the seeds, in octaves


def curve(dim, middle, width=0.15):
    return float(1 / (1 + np.exp(-(np.log2(dim) - middle) / width)))


def table_of(slope, model="linear", middle=4.3, seeds=3, exponent=1.0, dims=DIMS, **fields):
    """Accuracy rises at log2 D = middle + slope log2 H; the state is D^2 / H^exponent numbers."""
    found = []
    for heads, dim, seed in itertools.product(HEADS, dims, range(seeds)):
        at = middle + slope * np.log2(heads) + SCATTER[seed]
        found.append(tables.row(
            model=model, heads=heads, dim=dim, seed=seed, answer_accuracy=curve(dim, at),
            state_bytes=12 * dim**2 / heads**exponent, cell=f"{model}-{heads}-{dim}-{seed}",
            **fields,
        ))  # fmt: skip
    return pd.DataFrame(found)


def grid_of(table):
    return gather(table, plan_of(table), {"columns": "task", "rows": "model", "y": "heads"})


def plan_of(table):
    return table[[*tables.plan_of(table).columns, "heads"]]


def found_in(*arguments, **fields):
    (found,) = shifts_of(grid_of(table_of(*arguments, **fields)))
    return found


def test_equal_bytes_make_capacity():
    found = found_in(0.5)
    assert found.predicted == pytest.approx(0.5)
    middle, low, high = found.over_dim.slope()
    assert low < 0.5 < high and middle == pytest.approx(0.5, abs=0.1) and high - low < 0.4
    assert found.over_bytes.slope()[0] == pytest.approx(0, abs=0.2)
    assert found.verdict()[0] == "capacity"


def test_equal_dims_make_no_capacity():
    found = found_in(0.0, middle=5.0)
    middle, low, high = found.over_bytes.slope()
    assert low < -1 < high and middle == pytest.approx(-1, abs=0.2)
    assert found.over_dim.shift(1, 8)[0] == pytest.approx(0, abs=0.2)
    assert found.verdict() == ("not capacity", "D decides, whatever H")


def test_fewer_heads_may_hurt():
    assert found_in(-0.25, middle=5.4).verdict() == ("not capacity", "neither D nor bytes alone")


def test_a_state_without_heads_is_a_control():
    assert found_in(0.0, model="standard", middle=5.0, exponent=0).verdict()[0] == "control"


def test_few_seeds_and_curves_beyond_the_grid_decide_nothing():
    assert "fewer than 3 seeds" in found_in(0.5, seeds=1).verdict()[1]
    far = found_in(0.5, middle=5.4)
    assert far.over_dim.shift(1, 8)[2] == np.inf
    assert far.verdict()[0] == "undecided" and "beyond the D measured" in far.verdict()[1]


def test_shifts_that_agree_with_all_decide_nothing_and_bytes_are_told():
    """Intervals as they are: draws about a slope over D and one over bytes, per doubling of H."""
    generator = np.random.default_rng(0)

    def shifts(over_dim, over_bytes):
        located = [
            Locations({1: generator.normal(5, 0.3, 4000), 2: generator.normal(5 + at, 0.3, 4000)},
                      low=-99.0, high=99.0)
            for at in (over_dim, over_bytes)
        ]  # fmt: skip
        return Shifts("task", "model", *located, predicted=0.5, seeds=3)

    assert shifts(0.25, -0.5).verdict()[1].startswith("over D both agree; ")
    told = "over D both agree, though over bytes the curves lie apart; "
    assert shifts(0.25, -1.5).verdict()[1].startswith(told)
    assert shifts(0.25, -1.5).verdict()[0] == "undecided"


def test_a_location_between_two_dims_is_as_wide_as_the_grid():
    """A step between D = 24 and 32: any location between them is as likely."""
    step = [(np.log2(dim), float(dim > 24)) for dim in DIMS] * 3
    draws = locate({1: step, 2: step}).draws[1]
    low, high = np.quantile(draws, [0.025, 0.975])
    assert 4.4 < low < 4.75 and 4.85 < high < 5.2
    assert high - low > 0.25


def test_a_shift_of_whole_steps_of_the_grid_is_found():
    groups = {
        heads: [(float(x), float(x > middle)) for x in range(8)] * 3
        for heads, middle in ((1, 2.5), (2, 4.5))
    }
    middle, low, high = locate(groups).shift(1, 2)
    assert low < 2 < high and middle == pytest.approx(2, abs=0.2)
    assert low > 0.9 and high < 3.1


def test_one_number_of_heads_has_no_shift():
    assert locate({4: [(4.0, 0.1), (5.0, 0.9)]}) is None
    assert locate({4: [(4.0, 0.1), (5.0, 0.9)], 8: [(5.0, 0.9)]}) is None


@pytest.mark.parametrize("numbers", [1, 2])
def test_the_slope_that_keeps_bytes_equal(numbers):
    cells = pd.DataFrame(list(itertools.product(DIMS, HEADS)), columns=["dim", "heads"])
    cells["state_bytes"] = cells["dim"] ** numbers / cells["heads"]
    assert predicted_slope(cells) == pytest.approx(1 / numbers)


def test_the_table_is_rounded_once():
    found = shifts_of(grid_of(table_of(0.5)))
    line = rows(found).iloc[0]
    assert (line.shift_dim, line.shift_dim_low, line.shift_dim_high) == found[0].over_dim.slope()


def test_intervals_in_words():
    assert interval_text(0.5, -0.25, np.inf) == "+0.50 [−0.25, ∞]"


def test_the_figure_has_a_row_for_each_model_and_a_line_for_each_number_of_heads(tmp_path):
    table = pd.concat([table_of(0.5), table_of(0.0, "standard", 5.0, exponent=0)])
    paths = state.draw(table, plan_of(table), tables.experiment(), tmp_path / "figures")
    names = {path.name for path in paths}
    assert names == {"state.pdf", "state.png", "state.csv", "state_shift.csv", "state_shift.md",
                     "state_shift.tex"}  # fmt: skip
    shifts = pd.read_csv(tmp_path / "figures" / "state_shift.csv")
    assert len(shifts) == 2 * (1 + 6)
    assert shifts["verdict"].dropna().tolist() == ["control", "capacity"]
    picture = state.figure(grid_of(table), [], [], tables.experiment())
    panels = {axes.get_gid(): axes for axes in picture.axes}
    assert set(panels) == {
        f"panel/Arithmetic, {model}/{title}" for model in ("Standard", "Linear")
        for title in state.AXES
    }  # fmt: skip
    axes = panels["panel/Arithmetic, Linear/bytes of generation state"]
    (line,) = [line for line in axes.lines if line.get_gid() == "heads/8"]
    assert line.get_xdata()[0] == 12 * 16**2 / 8
    assert line.get_ydata()[0] == pytest.approx(
        100 * np.mean([curve(16, 5.8 + offset) for offset in SCATTER])
    )


def ranges_of(axes):
    """Return x of each range's bar, its data and where it stands on the page in points."""
    found = {}
    for bar in axes.collections:
        ((x, low), (_, high)) = bar.get_segments()[0]
        shown = bar.get_transform().transform((x, low))[0] * 72 / axes.figure.dpi
        found.setdefault(x, {})[bar.get_gid()] = (low, high, shown)
    return found


def test_the_ranges_of_one_place_stand_side_by_side():
    picture = state.figure(grid_of(table_of(0.5)), [], [], tables.experiment())
    axes = {axes.get_gid(): axes for axes in picture.axes}
    over_dim = ranges_of(axes["panel/Arithmetic, Linear/embedding dimension D"])
    assert set(over_dim) == set(DIMS)
    there = over_dim[24]
    assert list(there) == [f"range/{heads}" for heads in HEADS]
    for heads in HEADS:
        ends = [100 * curve(24, 4.3 + 0.5 * np.log2(heads) + aside) for aside in (0.1, -0.1)]
        assert there[f"range/{heads}"][:2] == pytest.approx(ends)
    places = [shown for _, _, shown in there.values()]
    assert np.diff(places) == pytest.approx(state.ASIDE)
    alone = ranges_of(axes["panel/Arithmetic, Linear/bytes of generation state"])[12 * 64**2]
    (shown,) = [shown for _, _, shown in alone.values()]
    data = axes["panel/Arithmetic, Linear/bytes of generation state"].transData
    assert shown == pytest.approx(data.transform((12 * 64**2, 0))[0] * 72 / picture.dpi)


def test_what_was_not_tried_is_named_instead_of_drawn(tmp_path):
    table = table_of(0.5)
    plan = plan_of(pd.concat([table, table_of(0.5, "standard")]))
    one_head = table[table["heads"] == 1]
    paths = state.draw(one_head, plan, tables.experiment(), tmp_path / "figures")
    assert "state_shift.csv" not in {path.name for path in paths}
    points = pd.read_csv(tmp_path / "figures" / "state.csv", comment="#")
    assert set(points["model"]) == {"Linear"} and set(points["heads"]) == {1}
    grid = state._grid(one_head, plan)
    picture = state.figure(grid, [], [], tables.experiment())
    assert len(picture.axes) == 2
    (said,) = [t.get_text() for t in picture.texts if "Not run yet" in t.get_text()]
    told = " ".join(said.split())
    assert "hence not drawn: Arithmetic, Standard; 2 heads; 4 heads; 8 heads." in told


def test_a_panel_whose_cells_all_failed_stays(tmp_path):
    table = table_of(0.5)
    failed = table_of(0.5, "standard").assign(state="failed", answer_accuracy=np.nan)
    grid = state._grid(pd.concat([table, failed]), plan_of(table))
    assert set(grid.cells["row"]) == {"Linear", "Standard"}


def test_where_nothing_was_tried_everything_stays():
    table = table_of(0.5)
    grid = gather(table, plan_of(table), FACETS)
    grid = dataclasses.replace(grid, cells=grid.cells.assign(state="not run"))
    assert without_untried_values(grid, heads=grid.cells["heads"]) is grid
