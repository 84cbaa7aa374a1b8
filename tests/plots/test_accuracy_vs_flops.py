"""Every cell is a point, the front is nobody's inferior."""

import made_up_tables as tables
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plots import accuracy_vs_flops
from plots.words import flops_unit

POINTS = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20)), min_size=1, max_size=15)


@given(POINTS)
def test_pareto_front_agrees_with_its_definition(points):
    def dominated(point):
        return any(
            c <= point[0] and g >= point[1] and (c, g) != point for c, g in points
        )  # fmt: skip

    cost, gain = np.array(points, float).T
    front = [tuple(point) for point in accuracy_vs_flops.pareto(cost, gain)]
    assert front == sorted({point for point in points if not dominated(point)})


def figures(table, plan=None):
    plan = tables.plan_of(table) if plan is None else plan
    return accuracy_vs_flops.figures(table, plan, tables.experiment())


def test_each_cell_is_a_point_under_both_conventions():
    table = tables.quick()
    (figure,) = figures(table).values()
    assert "MFLOPs of one forward pass over L tokens" in [t.get_text() for t in figure.texts]
    for title, column in accuracy_vs_flops.COLUMNS.items():
        axes = next(a for a in figure.axes if a.get_gid() == f"panel/n = 3, L = 25/{title}")
        for model in ("standard", "linear", "sparse"):
            part = table[(table["model"] == model) & (table["size"] == 3)].sort_values("dim")
            (line,) = [x for x in axes.lines if x.get_gid() == f"cells/{model.capitalize()}"]
            assert line.get_xdata() == pytest.approx(part[column].to_numpy() / 1e6)
            assert line.get_ydata() == pytest.approx(100 * part["answer_accuracy"].to_numpy())


def test_ranges_stand_right_of_their_points_where_no_front_rises():
    table = tables.product(["lis"], ["standard", "linear"], [4], [32, 64], seeds=(0, 2))
    apart = np.where(table["dim"] == 32, 0.1, 0.009)
    table["answer_accuracy"] = 0.5 + apart * table["seed"]
    (figure,) = figures(table).values()
    assert "bars, right of their points: minimum–maximum, where 2 % or more apart" in " ".join(
        text.get_text() for text in figure.texts
    )
    for axes in figure.axes:
        bars = {bar.get_gid(): bar for bar in axes.collections}
        asides = []
        for model in ("standard", "linear"):
            bar = bars[f"range/{model.capitalize()}"]
            (((x, low), (_, high)),) = bar.get_segments()
            part = table[(table["model"] == model) & (table["dim"] == 32)]
            ends = 100 * part["answer_accuracy"]
            assert (low, high) == pytest.approx((ends.min(), ends.max()))
            (points,) = [a for a in axes.lines if a.get_gid() == f"cells/{model.capitalize()}"]
            assert x == points.get_xdata()[0]
            shown = [artist.get_transform().transform((x, low))[0] for artist in (bar, points)]
            asides.append((shown[0] - shown[1]) * 72 / figure.dpi)
        assert asides == pytest.approx([accuracy_vs_flops.ASIDE, 2 * accuracy_vs_flops.ASIDE])


@pytest.mark.parametrize(
    ("most", "unit"),
    [(0, (1, "FLOPs")), (999, (1, "FLOPs")), (1e3, (1e3, "kFLOPs")), (2.4e5, (1e3, "kFLOPs")),
     (1.2e7, (1e6, "MFLOPs")), (9.6e9, (1e9, "GFLOPs")), (1e30, (1e15, "PFLOPs"))],
)  # fmt: skip
def test_the_unit_suits_the_size(most, unit):
    assert flops_unit(most) == unit


def test_a_figure_per_task_and_the_missing_are_counted():
    table = tables.product(["lis", "my task"], ["standard"], [4, 5], [32, 64])
    drawn = figures(table.drop(index=[0]), tables.plan_of(table))
    assert list(drawn) == ["accuracy_vs_flops_lis", "accuracy_vs_flops_my_task"]
    said = [" ".join(text.get_text() for text in figure.texts) for figure in drawn.values()]
    assert "Without a result, so not shown: 1 not run (of 4 points)." in said[0]
    assert "Without a result" not in said[1]
