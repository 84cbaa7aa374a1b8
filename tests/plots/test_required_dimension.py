"""The requirement's intervals, the interval-censored fit, and theory's lines."""

import made_up_tables as tables
import numpy as np
import pandas as pd
import pytest

from plots import growth_rows, paper, required_dimension, style, theory_lines
from plots.cells import gather
from plots.fit import growth
from plots.frontier import requirements

DIMS = np.array([32, 64, 128, 256, 512, 1024])
LENGTHS = np.array([85.0, 221.0, 365.0, 545.0])


def on_the_grid(needed):
    """The interval of powers of two in which each true requirement lies."""
    up_to = np.array([DIMS[value <= DIMS].min(initial=10**9) for value in needed], float)
    above = np.array([DIMS[value > DIMS].max(initial=0) for value in needed], float)
    return above, np.where(up_to == 10**9, np.inf, up_to)


@pytest.mark.parametrize("exponent", [0.0, 0.25, 0.5, 1.0])
def test_the_interval_covers_the_true_exponent_wherever_the_grid_lies(exponent):
    for shift in (1.0, 1.2, 1.5, 1.8):
        needed = 40 * shift * (LENGTHS / LENGTHS[0]) ** exponent
        found = growth(LENGTHS, *on_the_grid(needed))
        assert found.low <= exponent <= found.high
        assert found.low < found.exponent < found.high


def test_more_sizes_narrow_the_interval():
    def width(count):
        lengths = np.geomspace(80, 5000, count)
        found = growth(lengths, *on_the_grid(6 * lengths**0.5))
        return found.high - found.low

    assert width(12) < 0.6 * width(4)


def test_exact_requirements_give_the_slope_of_least_squares():
    """With intervals shrunk to points the fit must agree with an ordinary regression."""
    rng = np.random.default_rng(3)
    lengths = np.geomspace(50, 800, 9)
    dims = 5 * lengths**0.6 * 2 ** rng.normal(0, 0.1, 9)
    plain = np.polyfit(np.log2(lengths), np.log2(dims), 1)[0]
    found = growth(lengths, dims * 0.999, dims * 1.001)
    assert found.exponent == pytest.approx(plain, abs=0.05)


def test_not_reached_pulls_the_exponent_up():
    above, up_to = on_the_grid(60 * (LENGTHS / LENGTHS[0]) ** 0.3)
    reached = growth(LENGTHS, above, up_to)
    censored = growth(LENGTHS, [*above[:3], 1024.0], [*up_to[:3], np.inf])
    assert censored.exponent > reached.exponent and censored.high > reached.high


@pytest.mark.parametrize(
    ("lengths", "above", "up_to"),
    [
        ([85, 221], [32, 64], [64, 128]),
        ([85, 221, 365], [0, 0, 64], [32, 32, 128]),
        ([85, 221, 365], [512, 512, 512], [np.inf] * 3),
        ([85, 85, 85], [32, 64, 64], [64, 128, 128]),
    ],
)
def test_too_few_points_give_no_exponent(lengths, above, up_to):
    assert growth(lengths, above, up_to) is None


def grid(table, plan=None):
    return gather(table, tables.plan_of(table) if plan is None else plan)


def test_the_requirement_lies_above_the_largest_failing_dimension():
    shares = {8: 0.2, 16: 0.95, 32: 0.6, 64: 0.97}
    table = pd.DataFrame([tables.row(dim=d, answer_accuracy=a) for d, a in shares.items()])
    (item,) = requirements(grid(table).cells)
    assert (item.dim, item.below, item.state) == (16, 8, "reached")
    (item,) = requirements(grid(table[table["dim"].isin([8, 32])]).cells)
    assert (item.dim, item.below, item.state) == (None, 32, "not reached")
    assert item.best_accuracy == 0.6


def lines(axes, kind):
    return {line.get_gid(): line for line in axes.lines if str(line.get_gid()).startswith(kind)}


def draw(table, plan=None):
    plan = tables.plan_of(table) if plan is None else plan
    return required_dimension.figure(table, plan, tables.experiment())


def panel(figure, task):
    return next(axes for axes in figure.axes if axes.get_gid() == f"panel//{task}")


def test_figure_shows_intervals_and_the_slopes_of_table_1():
    table = tables.figure_1()
    figure = draw(table)
    axes = panel(figure, "LIS")
    points = growth_rows.points(grid(table))
    part = points[(points["task"] == "LIS") & (points["model"] == "Linear")]
    assert list(lines(axes, "reached/Linear")["reached/Linear"].get_ydata()) == list(part["dim"])
    for item in part.itertuples():
        bar = lines(axes, f"interval/Linear/{item.size}")[f"interval/Linear/{item.size}"]
        assert list(bar.get_ydata()) == [item.below, item.dim]
    for model, exponents in paper.GENERAL.items():
        line = lines(axes, "theory")[f"theory/{model.capitalize()}/{exponents[0]:g}"]
        x, y = np.log(line.get_xdata()), np.log(line.get_ydata())
        assert (y[1] - y[0]) / (x[1] - x[0]) == pytest.approx(exponents[0])
    assert set(lines(panel(figure, "ED"), "theory")) == {
        "theory/Standard/0", "theory/Linear/0.5", "theory/Linear/0.25", "theory/Sparse/0.5",
        "theory/Sparse/0",
    }  # fmt: skip
    said = " ".join(text.get_text() for text in figure.texts if text.get_gid() == "footer")
    fitted = growth_rows.fits(grid(table)).set_index(["task", "model"])
    assert f"Linear {fitted.loc[('LIS', 'Linear'), 'exponent']:.2f} [" in said
    assert "interval-censored" in said


def test_not_reached_and_too_few_points_are_said():
    table = tables.quick()
    figure = draw(table)
    axes = panel(figure, "Arithmetic")
    arrows = lines(axes, "not reached/Linear")
    assert len(arrows) == 2 * 3
    for gid, mark in arrows.items():
        if gid.endswith("/mark"):  # the model's own, at the largest D that fails
            (base, top), (at,) = arrows[gid.removesuffix("/mark")].get_ydata(), mark.get_ydata()
            assert (mark.get_marker(), at) == ("s", base) and top > base
    said = " ".join(text.get_text() for text in figure.texts)
    assert "Linear too few points (theory: at least 0.25" in said


def said_under(figure):
    texts = [text.get_text() for text in figure.texts if text.get_gid() == "footer"]
    return " ".join(" ".join(texts).split())


def at_sizes(shares, dims=(8, 16, 32)):
    """A table of Standard on LIS, a row of accuracies per size."""
    return pd.DataFrame(
        [
            tables.row(task="lis", size=size, dim=dim, answer_accuracy=share)
            for size, row in shares.items()
            for dim, share in zip(dims, row, strict=False)
        ]
    )


def test_a_line_through_the_smallest_d_of_the_grid_is_dotted():
    """Least D at the floor of the grid say nothing of growth."""
    bounded, floor = [0.2, 0.95, 1], [0.95, 1, 1]
    for first, dims, dotted in ((floor, [8, 16], True), (bounded, [16, 16], False)):
        axes = panel(draw(at_sizes({4: first, 6: bounded})), "LIS")
        (joint,) = [line for line in axes.lines if line.get_gid() == "line/Standard"]
        assert list(joint.get_ydata()) == dims
        assert joint.is_dashed() == dotted


def test_a_wider_d_that_fails_again_is_said():
    said = said_under(draw(at_sizes({4: [0.2, 0.95, 0.3], 6: [0.2, 0.95, 1]})))
    assert "A wider D fails again: LIS: Standard n = 4 (least D 16, fails at 32)." in said
    assert "fails again" not in said_under(draw(at_sizes({4: [0.2, 0.95, 0.99]})))


def test_a_size_without_a_result_is_named():
    plan = tables.plan_of(at_sizes({4: [0, 0, 0], 6: [0, 0, 0], 9: [0, 0, 0]}))
    said = said_under(draw(at_sizes({4: [0.2, 0.95, 1]}), plan))
    assert "No result, hence no mark: LIS: Standard n = 6, 9." in said


def test_equal_labels_of_theory_are_written_once_in_grey():
    labels = [theory_lines.Label(24.0, "√L", color) for color in ("red", "green")]
    found = theory_lines._merged([*labels, theory_lines.Label(8.0, "constant", "blue")])
    assert found == [(8.0, "constant", "blue"), (24.0, "√L", style.GREY)]


def test_an_outsiders_task_gets_no_theory():
    table = tables.product(["zebra"], ["standard", "other"], [3, 4, 5], [32, 64, 128, 256])
    (axes,) = draw(table).axes
    assert lines(axes, "reached") and not lines(axes, "theory")


def test_files_are_the_same_when_drawn_again(tmp_path):
    table = tables.quick()
    first, second = (
        required_dimension.draw(table, tables.plan_of(table), tables.experiment(), tmp_path / n)
        for n in "ab"
    )
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    assert {p.name for p in first} == {
        "required_dimension.pdf", "required_dimension.png", "required_dimension.csv",
        "required_dimension_fit.csv",
    }  # fmt: skip


def test_a_least_dim_known_from_above_alone_bends_no_line():
    rows = [
        tables.row("lis", "standard", size, dim, answer_accuracy=share, max_len=length)
        for size, length, dim, share in (
            (4, 11, 8, 0.95), (10, 23, 8, 0.4), (10, 23, 16, 0.95), (20, 43, 64, 0.99),
        )
    ]  # fmt: skip
    axes = panel(draw(pd.DataFrame(rows)), "LIS")
    assert list(lines(axes, "reached/")["reached/Standard"].get_ydata()) == [8, 16, 64]
    assert list(lines(axes, "line/")["line/Standard"].get_ydata()) == [8, 16]


def test_only_what_lies_between_failing_and_reaching_is_open():
    measured = pd.DataFrame([
        tables.row(dim=d, answer_accuracy=a) for d, a in ((16, 0.4), (64, 0.97))
    ])  # fmt: skip
    planned = pd.DataFrame([tables.row(dim=d) for d in (8, 16, 32, 64, 128)])
    (item,) = requirements(gather(measured, tables.plan_of(planned)).cells)
    assert (item.below, item.dim, item.open_below) == (16, 64, (32,))
    (item,) = requirements(gather(measured.iloc[1:], tables.plan_of(planned)).cells)
    assert (item.below, item.dim, item.open_below) == (None, 64, (8, 16, 32))


def test_a_fit_ends_at_the_largest_size_that_its_model_ran():
    """The other model's run says how long the largest size is, and no more."""
    sizes, dims = [6, 10, 13, 16], [16, 32, 64, 128, 256]
    planned = tables.product(["arithmetic"], ["standard", "linear"], sizes, dims)
    largest = planned["size"].eq(16) & planned["model"].eq("linear")
    axes = panel(draw(planned[~largest], tables.plan_of(planned)), "Arithmetic")
    ends = {name: line.get_xdata().tolist() for name, line in lines(axes, "fit/").items()}
    assert ends == {"fit/Standard": [85, 545], "fit/Linear": [85, 365]}


def test_models_that_start_at_one_point_share_the_label_of_their_slope():
    sizes, dims = [6, 10, 13], [32, 64, 128]
    three, five = (
        tables.product(["lis"], ["standard"], sizes, dims, layers=layers) for layers in (3, 5)
    )
    (axes,) = draw(pd.concat([three, five]).assign(answer_accuracy=0.95)).axes
    assert len(lines(axes, "theory")) == 2
    assert [text.get_text() for text in axes.texts] == ["constant"]


def test_the_facets_put_each_depth_into_a_panel_of_its_own():
    models = ["standard", "linear"]
    table = pd.concat(
        tables.product(["ed"], models, [2, 4], [32, 64, 128]).assign(
            layers=layers, cell=lambda frame, layers=layers: frame["cell"] + f"-{layers}"
        )
        for layers in (3, 5)
    )
    plain = tables.experiment()
    faceted = tables.experiment(facets={"columns": ["task", "layers"]})
    for experiment, panels, labels in (
        (plain, 1, ["Standard, 3 layers", "Standard, 5 layers", "Linear, 3 layers"]),
        (faceted, 2, ["Standard", "Linear"]),
    ):
        picture = required_dimension.figure(table, table, experiment)
        drawn = [axes for axes in picture.axes if axes.get_title()]
        (legend,) = picture.legends
        assert len(drawn) == panels
        assert [text.get_text() for text in legend.get_texts()][: len(labels)] == labels
