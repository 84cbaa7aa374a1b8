"""The one layout: nothing outside the page, nothing too small, whatever the table holds."""

import itertools
import warnings

import made_up_tables as tables
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from common import UserError
from plots import (
    accuracy_vs_flops,
    error_positions,
    frontier_lines,
    heatmap,
    learning_curves,
    report,
    required_dimension,
    style,
)
from plots.cells import gather, is_unsure, records
from plots.layout import Layout
from plots.words import chance_text

HOSTILE = [
    "日本語", "🦊🚀", "a\tb\nc\x1b[31m", r"$\foo$ and $x", "100 % _x_ #", '=HYPERLINK("x")',
    "w" * 300, "\u202eשלום عربي", "../../etc", "<b>&\"'</b>", "_x",
]  # fmt: skip


def every_figure(table, folder, plan=None, **fields):
    plan = tables.plan_of(table) if plan is None else plan
    experiment = tables.experiment(**fields)
    yield heatmap.figure(table, plan, experiment)
    yield required_dimension.figure(table, plan, experiment)
    yield from accuracy_vs_flops.figures(table, plan, experiment).values()
    yield from learning_curves.figures(table, plan, experiment, folder).values()
    yield from error_positions.figures(table, plan, experiment, folder).values()


def inside(figure):
    renderer = figure.canvas.get_renderer()
    boxes = [axes.get_tightbbox(renderer) for axes in figure.axes]
    boxes += [item.get_window_extent(renderer) for item in [*figure.texts, *figure.legends]]
    page = figure.bbox
    return all(
        box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1
        for box in boxes
    )


SHAPES = {
    "many": lambda: tables.product(
        ["arithmetic", "ed"], ["standard", "a rather long name", "sparse"], [6],
        [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768], (0, 1),
    ),
    "one cell": lambda: tables.product(["lis"], ["standard"], [4], [32]),
    "one D": lambda: tables.product(["lis"], ["standard", "linear"], [4, 5, 6], [32]),
    "one row": lambda: tables.product(["lis"], ["standard"], [4], [32, 64, 128]),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_all_print_is_on_the_page_and_large_enough(shape, tmp_path):
    table = SHAPES[shape]()
    for figure in every_figure(table, tmp_path):
        assert inside(figure)
        assert figure.get_size_inches()[0] <= style.PAGE_WIDTH + 1e-9
        shown = [text for text in figure.findobj(Text) if text.get_text().strip()]
        assert min(text.get_fontsize() for text in shown) >= style.SMALLEST


@given(
    st.lists(st.floats(0.3, 5), min_size=1, max_size=7),
    st.lists(st.floats(0.2, 2), min_size=1, max_size=3),
)
@settings(max_examples=10, deadline=None)
def test_panels_never_overlap_and_columns_go_on_below(widths, heights):
    rows, columns = [f"r{i}" for i in range(len(heights))], [f"c{i}" for i in range(len(widths))]
    layout = Layout(rows, columns, [], "a footer", widths=widths, heights=heights)
    assert set(layout.panels) == set(itertools.product(rows, columns))
    boxes = [axes.get_position() for axes in layout.panels.values()]
    for a, b in itertools.combinations(boxes, 2):
        assert a.x1 <= b.x0 or b.x1 <= a.x0 or a.y1 <= b.y0 or b.y1 <= a.y0
    for (row, column), axes in layout.panels.items():
        box = axes.get_position()
        assert 0 <= box.x0 < box.x1 <= 1 and 0 <= box.y0 < box.y1 <= 1
        assert box.width * layout.width >= widths[columns.index(column)] - 1e-9
        assert box.height * layout.height >= heights[rows.index(row)] - 1e-9


def test_text_fits_whatever_was_drawn_before(tmp_path):
    """The font object is shared with whatever draws, which leaves its own size in it."""
    widths = [heatmap.figure(t, tables.plan_of(t), tables.experiment()).get_size_inches()
              for t in [tables.quick()] * 2]  # fmt: skip
    assert (widths[0] == widths[1]).all()


def test_n_grows_upward_in_every_figure(tmp_path):
    table = tables.product(["lis"], ["standard"], [4, 5, 6], [32, 64])
    found = 0
    for figure in every_figure(table, tmp_path):
        heights = {}
        for axes in figure.axes:
            row = str(axes.get_gid()).split("/")[1:2]
            if row and row[0].startswith("n = "):
                heights[int(row[0].split()[2].strip(","))] = axes.get_position().y0
            labels = [label.get_text() for label in axes.get_yticklabels()]
            if labels and labels[0].startswith("n="):
                heights = {int(label[2:].split()[0]): y for y, label in enumerate(labels)}
        assert [heights[n] for n in sorted(heights)] == sorted(heights.values())
        found += bool(heights)
    assert found >= 2


def test_chance_is_drawn_and_named():
    table = tables.quick().assign(chance_accuracy=0.125)
    (figure,) = accuracy_vs_flops.figures(
        table, tables.plan_of(table), tables.experiment()
    ).values()
    for axes in figure.axes:
        (line,) = [item for item in axes.lines if item.get_gid() == "chance"]
        assert list(line.get_ydata()) == [12.5, 12.5]
    drawn = heatmap.figure(table, tables.plan_of(table), tables.experiment())
    said = " ".join(text.get_text() for text in drawn.texts)
    assert "chance (always the most frequent answer): 12.5 %" in said
    without = heatmap.figure(tables.quick(), tables.plan_of(table), tables.experiment())
    assert "chance" not in " ".join(text.get_text() for text in without.texts)


@pytest.mark.parametrize(
    "shares, said",
    [
        ((0.1, 0.1), "answer): 10.0 %"),
        ((0.1, 0.25), "answer): A 10.0 %, B 25.0 %"),
        ((0.1, None), "answer): A 10.0 %"),
        ((None, None), ""),
    ],
)
def test_chance_is_said_once_where_columns_have_the_same(shares, said):
    cells = pd.DataFrame({"column": ["A", "B"], "chance_accuracy": pd.Series(shares, dtype=float)})
    assert chance_text(cells).endswith(said) and bool(chance_text(cells)) == bool(said)


def test_cells_whose_interval_or_range_holds_90_percent_are_framed():
    ends = {"answer_accuracy": 0.91, "answer_accuracy_high": 0.95}
    one = [
        tables.row(dim=d, answer_accuracy_low=low, **ends) for d, low in ((8, 0.89), (16, 0.905))
    ]
    two = [tables.row(dim=32, seed=s, answer_accuracy=a) for s, a in enumerate((0.85, 0.97))]
    # The seeds agree, and one of them might have come out below 90 %.
    near = {"answer_accuracy": 0.905, "answer_accuracy_low": 0.89, "answer_accuracy_high": 0.92}
    two += [tables.row(dim=48, **near), tables.row(dim=48, seed=1, **near | ends)]
    table = pd.DataFrame([*one, *two, tables.unmeasured("failed", dim=64)])
    cells = gather(table, tables.plan_of(table)).cells
    assert {cell.dim: is_unsure(cell) for cell in records(cells)} == {
        8: True, 16: False, 32: True, 48: True, 64: False
    }  # fmt: skip
    figure = heatmap.figure(table, tables.plan_of(table), tables.experiment())
    framed = [item.get_gid() for item in frames(figure)]
    assert framed == ["frame/6/8", "frame/6/32", "frame/6/48"]


def frames(figure):
    return [item for item in figure.findobj(Rectangle) if str(item.get_gid()).startswith("frame")]


def test_frames_touch_neither_the_extremes_nor_a_line_along_the_cells_edge():
    dims = [8, 12, 16, 24, 32, 48, 64, 96]
    table = tables.product(["arithmetic", "ed", "lis"], ["sparse"], [3, 4], dims, (0, 1, 2))
    table["answer_accuracy"] = 0.65 + 0.15 * table["seed"]
    figure = heatmap.figure(table, tables.plan_of(table), tables.experiment())
    renderer, dpi = figure.canvas.get_renderer(), figure.dpi
    assert len(frames(figure)) == 3 * 2 * len(dims)
    for axes in {frame.axes for frame in frames(figure)}:
        texts = {text.get_gid(): text for text in axes.texts}
        for frame in (item for item in frames(figure) if item.axes is axes):
            place = frame.get_gid().removeprefix("frame/")
            box = frame.get_window_extent(renderer)
            middles = [
                texts[f"{name}/{place}"].get_transform().transform(
                    texts[f"{name}/{place}"].get_position())[1]
                for name in ("minimum", "maximum")
            ]  # fmt: skip
            digit = 0.73 * style.SMALLEST / 72 * dpi
            assert middles[0] + digit / 2 < box.y0 - 1 < box.y1 + 1 < middles[1] - digit / 2
            edges = [(round(frame.get_center()[0]) + side, 0) for side in (-0.5, 0.5)]
            left, right = axes.transData.transform(edges)[:, 0]
            line = (frontier_lines.OURS["linewidth"] + frame.get_linewidth()) / 2 / 72 * dpi
            assert left + line < box.x0 and box.x1 < right - line
            number = texts[f"value/{place}"].get_window_extent(renderer)
            assert box.x0 < number.x0 and number.x1 < box.x1


@pytest.mark.parametrize(("dims", "least", "most"), [(3, 0.05, 0.09), (8, 0.01, 0.04)])
def test_panels_stand_close_only_where_that_keeps_them_in_one_band(dims, least, most):
    ends = {"answer_accuracy_low": 0.89, "answer_accuracy_high": 0.91}
    table = tables.product(
        ["arithmetic", "ed", "lis"], ["linear"], [6, 8], range(8, 8 + 8 * dims, 8)
    )
    table = table[(table["task"] != "arithmetic") | (table["dim"] < 64)].assign(**ends)
    figure = heatmap.figure(table, tables.plan_of(table), tables.experiment())
    first, second = (axes for axes in figure.axes[:2])
    assert first.get_position().y0 == pytest.approx(second.get_position().y0)
    labels = [label.get_window_extent().x0 for label in second.get_yticklabels()]
    gap = (min(labels) - first.get_window_extent().x1) / figure.dpi
    assert least < gap < most


def test_tick_labels_stand_off_a_line_along_the_left_edge():
    figure = heatmap.figure(*(lambda t: (t, tables.plan_of(t), tables.experiment()))(
        tables.product(["lis"], ["standard"], [4, 5], [32, 64]).assign(answer_accuracy=0.95)
    ))  # fmt: skip
    (axes,) = [axes for axes in figure.axes if str(axes.get_gid()).startswith("panel")]
    left = axes.get_window_extent().x0 - frontier_lines.OURS["linewidth"] / 2 / 72 * figure.dpi
    for label in axes.get_yticklabels():
        assert left - label.get_window_extent(figure.canvas.get_renderer()).x1 > 1.5


KEYS = ["task", "model", "size", "dim", "layers", "recipe", "format", "model.position"]


@given(st.permutations(KEYS), st.integers(0, 3))
@settings(max_examples=10, deadline=None)
def test_whatever_the_facets_every_cell_has_a_place_of_its_own(order, rows):
    table = pd.DataFrame([
        tables.row(task, "standard" if d > 16 else "linear", size, d, layers=layers,
                   **{"recipe": f"r{layers}", "model.position": p, "format": f})
        for task, size, d, layers, p, f in itertools.product(
            ["lis", "ed"], [4, 5], [16, 32], [1, 2], ["rope", "none"], ["cot", "direct"])
    ])  # fmt: skip
    x, y, *others = order
    facets = {"x": x, "y": y, "columns": others[:1], "rows": others[1 : 1 + rows] or ["model"]}
    cells = gather(table, tables.plan_of(table).assign(
        **{"model.position": table["model.position"]}), facets).cells  # fmt: skip
    assert len(cells) == len(table)
    assert not cells.duplicated(["column", "row", "x", "y"]).any()


def test_rows_of_numbers_are_in_their_order():
    table = tables.product(["lis"], ["standard"], [4, 5], [32, 128, 1024])
    grid = gather(table, tables.plan_of(table), {"x": "size", "y": "model", "rows": "dim"})
    assert grid.model_rows == ["D = 32", "D = 128", "D = 1024"]


def test_facets_of_numbers_and_of_unknown_settings():
    table = pd.DataFrame([
        tables.row(dim=32, **{"recipe.learning_rate": rate}) for rate in ("0.001", "0.002")
    ])  # fmt: skip
    plan = tables.plan_of(table).assign(**{"recipe.learning_rate": ["0.001", "0.002"]})
    grid = gather(table, plan, {"x": "recipe.learning_rate"})
    assert list(grid.cells["x"]) == [0.001, 0.002]
    with pytest.raises(UserError, match=r"facets: y: width is no setting; there are task, format"):
        gather(table, plan, {"y": "width"})


def test_one_head_and_two_layers_are_told_in_the_right_number():
    assert [style.setting_label("heads", n) for n in (1, 2)] == ["1 head", "2 heads"]
    figure = heatmap.figure(
        *(lambda t: (t, tables.plan_of(t), tables.experiment()))(
            pd.DataFrame([tables.row(heads=1, layers=1)])
        )
    )
    assert "1 layer; 1 head;" in " ".join(text.get_text() for text in figure.texts)


@given(st.lists(st.text(max_size=50) | st.sampled_from(HOSTILE), min_size=3, max_size=3))
@settings(max_examples=5, deadline=None)
def test_any_names_are_drawn(names):
    task, model, recipe = (name or "empty" for name in names)
    rows = [tables.row(task, name, 4, d, recipe=recipe) for name in (model, f"{model}!")
            for d in (32, 64)]  # fmt: skip
    table = pd.DataFrame(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = heatmap.figure(table, tables.plan_of(table), tables.experiment(budget=recipe))
        figure.canvas.draw()
    assert len([a for a in figure.axes if str(a.get_gid()).startswith("panel")]) == 2
    assert inside(figure)


def test_hostile_names_go_through_figures_tables_latex_and_report(tmp_path):
    rows = [
        tables.row(HOSTILE[3], model, 4, d, recipe=HOSTILE[0], device=model, commit=HOSTILE[1],
                   cell=f"{model}{d}")
        for model in (HOSTILE[5], HOSTILE[6], HOSTILE[8]) for d in (32, 64)
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written = report.draw(
            table,
            tables.plan_of(table),
            tables.experiment(budget=" ".join(HOSTILE)),
            tmp_path / "x",
        )
    assert {path.suffix for path in written} == {".pdf", ".png", ".csv", ".md", ".tex", ".html"}
    for path in written:
        assert path.parent in (tmp_path, tmp_path / "x")
        if path.suffix == ".csv":
            assert not path.read_text().startswith("=") and '\n"=' not in path.read_text()
            assert np.all([not line.startswith("=") for line in path.read_text().split(",")])
    page = (tmp_path / "report.html").read_text()
    assert "<b>&" not in page
    assert "\u202e" not in page.partition('id="cells"')[0]  # it would turn what follows
    assert "<dd>2030-01-01 00:00 UTC to 2030-01-01 00:00 UTC</dd>" in page
