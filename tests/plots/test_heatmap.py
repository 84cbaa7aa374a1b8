"""What the heatmap says, read back from matplotlib's objects."""

import itertools
from types import SimpleNamespace

import made_up_tables as tables
import numpy as np
import pandas as pd
import pytest

from plots import frontier_lines, heatmap, style


def draw(table, plan=None, **fields):
    plan = tables.plan_of(table) if plan is None else plan
    return heatmap.figure(table, plan, tables.experiment(**fields))


def panels(figure):
    return {axes.get_gid(): axes for axes in figure.axes if str(axes.get_gid()).startswith("panel")}


def texts(axes, kind="value"):
    found = {}
    for text in axes.texts:
        gid = text.get_gid() or ""
        if gid.startswith(kind):
            _, size, dim = gid.split("/")
            found[int(size), int(dim)] = text.get_text()
    return found


def legend(figure):
    return [text.get_text() for item in figure.legends for text in item.get_texts()]


def line(axes, gid):
    (found,) = [item for item in axes.lines if item.get_gid() == gid]
    return np.array(found.get_xdata(), float), np.array(found.get_ydata(), float)


def footer(figure):
    return " ".join(text.get_text() for text in figure.texts if text.get_gid() == "footer")


def values(*accuracies, size=2, dims=(8, 16, 32, 64), task="arithmetic"):
    return pd.DataFrame(
        [
            tables.row(task=task, size=size, dim=d, answer_accuracy=a)
            for d, a in zip(dims, accuracies, strict=False)
        ]
    )


def test_every_cell_shows_its_accuracy_at_its_place():
    table = tables.quick()
    figure = draw(table)
    assert set(panels(figure)) == {
        f"panel/{m}/Arithmetic" for m in ("Standard", "Linear", "Sparse")
    }
    for model in ("standard", "linear", "sparse"):
        axes = panels(figure)[f"panel/{model.capitalize()}/Arithmetic"]
        colors = axes.collections[0].get_array().reshape(3, 4)
        for row in table[table["model"] == model].itertuples():
            assert texts(axes)[row.size, row.dim] == style.percent(row.answer_accuracy)
            place = [2, 3, 4].index(row.size), [8, 16, 32, 64].index(row.dim)
            assert colors[place] == pytest.approx(100 * row.answer_accuracy)


def test_figure_1_has_the_papers_rows_columns_and_sizes():
    figure = draw(tables.figure_1())
    labels = list(panels(figure))
    assert labels == [
        f"panel/{model}/{task}"
        for model, task in itertools.product(
            ("Standard", "Linear", "Sparse"), ("Arithmetic", "ED", "LIS")
        )
    ]
    axes = panels(figure)["panel/Sparse/LIS"]
    assert [t.get_text() for t in axes.get_yticklabels()] == [
        "n=40\nL=83", "n=110\nL=223", "n=175\nL=353", "n=250\nL=503"
    ]  # fmt: skip
    assert [t.get_text() for t in axes.get_xticklabels()] == [
        "32",
        "64",
        "128",
        "256",
        "512",
        "1024",
    ]
    arithmetic = panels(figure)["panel/Sparse/Arithmetic"]
    assert len(arithmetic.get_xticklabels()) == 5
    bar = next(axes for axes in figure.axes if axes.get_gid() == "colorbar")
    assert bar.get_ylim() == (0, 100)


def test_an_outsiders_task_and_model_come_after_the_known_ones():
    table = tables.product(["zebra", "lis"], ["aaa", "sparse"], [4, 5], [32, 64])
    assert list(panels(draw(table))) == [
        "panel/Sparse/LIS", "panel/Sparse/zebra", "panel/aaa/LIS", "panel/aaa/zebra"
    ]  # fmt: skip


def test_sizes_that_no_model_tried_are_named_and_not_drawn():
    tried = pd.DataFrame([tables.row(size=4, dim=16), tables.unmeasured("failed", size=6, dim=16)])
    plan = tables.product(["arithmetic", "lis"], ["linear", "standard"], [4, 6, 8, 10], [16, 32])
    figure = draw(tried, plan)
    drawn = {name: {size for size, _ in texts(axes)} for name, axes in panels(figure).items()}
    assert drawn == {
        "panel/Standard/Arithmetic": {4, 6}, "panel/Linear/Arithmetic": {4, 6},
        "panel/Standard/LIS": {4, 6, 8, 10}, "panel/Linear/LIS": {4, 6, 8, 10},
    }  # fmt: skip
    told = " ".join(text.get_text() for text in figure.texts).replace("\n", " ")
    assert "hence not drawn: Arithmetic n = 8, 10; Arithmetic D = 32." in told


def test_states_are_told_apart_and_the_legend_names_only_those_present():
    done, failed, unfinished = (tables.row(dim=d) for d in (8, 16, 32))
    failed = tables.unmeasured("failed", dim=16)
    unfinished = tables.unmeasured("unfinished", dim=32)
    table = pd.DataFrame([done, failed, unfinished])
    plan = pd.DataFrame([tables.row(dim=d) for d in (8, 12, 16, 32)])
    figure = draw(table, plan)
    (axes,) = panels(figure).values()
    assert texts(axes) == {
        (6, 8): style.percent(done["answer_accuracy"]), (6, 12): "–", (6, 16): "✗", (6, 32): "…"
    }  # fmt: skip
    patches = {patch.get_gid(): patch for patch in axes.patches if patch.get_gid()}
    assert set(patches) == {"failed/6/16", "unfinished/6/32", "not run/6/12"}
    assert len({patch.get_hatch() for patch in patches.values()}) == 3
    drawn = axes.collections[0].get_array().reshape(-1)
    assert list(np.ma.getmaskarray(drawn)) == [False, True, True, True]
    assert all(word in legend(figure) for word in heatmap.STATE_WORDS.values())
    assert not set(legend(draw(table.iloc[:1]))) & set(heatmap.STATE_WORDS.values())


def test_zero_accuracy_is_a_result_and_not_a_missing_cell():
    figure = draw(values(0.0))
    (axes,) = panels(figure).values()
    assert texts(axes) == {(2, 8): "0.0"}
    assert not np.ma.getmaskarray(axes.collections[0].get_array()).any()


def test_frontier_runs_left_of_the_first_dimension_that_reaches_90_percent():
    table = pd.concat([values(0.1, 0.9, 0.95, 1.0), values(0.1, 0.2, 0.91, 0.8, size=3)])
    (axes,) = panels(draw(table)).values()
    xs, ys = line(axes, "frontier")
    assert list(xs) == [0.5, 0.5, 1.5, 1.5]
    assert list(ys) == [-0.5, 0.5, 0.5, 1.5]


def test_frontier_lies_at_the_right_edge_when_no_dimension_reaches_it():
    (axes,) = panels(draw(values(0.1, 0.2, 0.3, 0.8999))).values()
    assert list(line(axes, "frontier")[0]) == [3.5, 3.5]
    assert texts(axes)[2, 64] == "<90"


def test_no_frontier_is_drawn_where_a_missing_cell_could_hold_it():
    table = values(0.1, 0.2)
    plan = tables.plan_of(values(0, 0, 0, 0))
    (axes,) = panels(draw(table, plan)).values()
    assert [item.get_gid() for item in axes.lines] == []


def test_dimensions_wider_than_any_tried_are_named_not_drawn():
    plan = tables.plan_of(values(0, 0, 0, 0))
    figure = draw(values(0.1), plan)
    (axes,) = panels(figure).values()
    assert set(texts(axes)) == {(2, 8)}
    assert [item.get_gid() for item in axes.lines] == []  # a wider one could reach 90 %
    assert "hence not drawn: D = 16, 32, 64" in " ".join(footer(figure).split())
    (axes,) = panels(draw(values(0.1, 0.2, 0.3), plan)).values()
    assert len(texts(axes)) == 3


def test_each_column_is_as_wide_as_what_was_tried_in_it():
    narrow, wide = values(0.1, 0.95), values(0.1, 0.2, 0.95, task="lis")
    plan = tables.plan_of(pd.concat([values(0, 0, 0, 0), values(0, 0, 0, 0, task="lis")]))
    figure = draw(pd.concat([narrow, wide]), plan)
    drawn = {gid.split("/")[-1]: len(texts(axes)) for gid, axes in panels(figure).items()}
    assert drawn == {"Arithmetic": 2, "LIS": 3}
    told = " ".join(footer(figure).split())
    assert "hence not drawn: Arithmetic D = 32, 64; LIS D = 64" in told


def test_the_papers_frontier_ends_at_the_right_edge_where_its_dimension_is_not_drawn():
    table = pd.DataFrame([tables.row(model="linear", size=6, dim=d) for d in (32, 64)])
    plan = pd.DataFrame([tables.row(model="linear", size=6, dim=d) for d in (32, 64, 128, 256)])
    (axes,) = panels(draw(table, plan)).values()
    assert list(line(axes, "frontier/paper")[0]) == [1.5, 1.5]


def test_frontier_is_dotted_where_a_smaller_dimension_lacks_a_result():
    table = values(0.1, 0.2, 0.95, 1.0).drop(index=1)
    plan = tables.plan_of(values(0, 0, 0, 0))
    figure = draw(table, plan)
    (axes,) = panels(figure).values()
    assert list(line(axes, "frontier/unsure")[0]) == [1.5, 1.5]
    assert not any(item.get_gid() == "frontier" for item in axes.lines)
    assert "dotted: some D just below has no result" in legend(figure)


def test_where_nothing_reaches_90_the_line_stands_right_of_the_last_planned_d():
    narrow, wide = values(0.1, 0.2, 0.3, size=2, dims=(8, 16, 32)), values(0.1, 0.99, size=4)
    figure = draw(pd.concat([narrow, wide, values(0.1, 0.1, 0.1, 0.97, size=6)]))
    (axes,) = panels(figure).values()
    assert list(line(axes, "frontier")[0])[:2] == [2.5, 2.5]


def test_a_row_without_a_line_is_named():
    plan = tables.plan_of(pd.concat([values(0, 0, 0, 0), values(0, 0, 0, 0, size=3)]))
    said = footer(draw(pd.concat([values(0.1, 0.2), values(0.1, 0.2, 0.95, 1, size=3)]), plan))
    assert (
        "No line: 90 % is not reached, and some D lack a result: Arithmetic: Standard n = 2."
        in (said.replace("\n", " "))
    )


def test_a_line_of_which_the_budget_is_not_known_has_a_grey_core():
    figure = draw(values(0.1, 0.2, 0.95, 1.0))  # without curves
    (axes,) = panels(figure).values()
    assert list(line(axes, "frontier/perhaps")[0]) == [1.5, 1.5]
    assert "grey core: not known whether the budget limits it" in legend(figure)


def test_the_papers_frontier_stands_at_its_dimensions():
    figure = draw(tables.figure_1())
    axes = panels(figure)["panel/Linear/Arithmetic"]
    xs, ys = line(axes, "frontier/paper")
    # 256 is the fourth of 32, 64, 128, 256, 512 and is needed for 6 operators; then 512.
    assert xs == pytest.approx(np.array([3, 3, 4, 4, 4, 4, 4, 4]) - 0.5)
    assert list(ys) == [-0.5, 0.5, 0.5, 1.5, 1.5, 2.5, 2.5, 3.5]
    others = [gid for gid in panels(figure) if not gid.endswith("Arithmetic")]
    for gid in others:
        assert not any(item.get_gid() == "frontier/paper" for item in panels(figure)[gid].lines)


@pytest.mark.parametrize("change", [{"layers": 5}, {"format": "direct"}, {"model": "other"}])
def test_the_papers_frontier_is_not_drawn_beside_what_it_did_not_measure(change):
    table = pd.DataFrame([tables.row(dim=d, **change) for d in (32, 64, 128)])
    (axes,) = panels(draw(table)).values()
    assert not any(item.get_gid() == "frontier/paper" for item in axes.lines)


def test_several_seeds_show_the_mean_the_range_and_their_number():
    table = pd.DataFrame(
        [tables.row(seed=s, answer_accuracy=a) for s, a in enumerate((0.8, 0.9, 0.97))]
    )
    figure = draw(table)
    (axes,) = panels(figure).values()
    assert texts(axes) == {(6, 64): "89.0"}
    assert texts(axes, "minimum") == {(6, 64): "80.0"}
    assert texts(axes, "maximum") == {(6, 64): "97.0"}
    assert "mean of 3 seeds (maximum above, minimum below)" in footer(figure)
    assert "one seed per cell" in footer(draw(tables.quick()))


def test_a_cell_with_fewer_seeds_than_planned_is_marked():
    table = pd.DataFrame([
        tables.row(seed=0, answer_accuracy=0.8), tables.row(seed=1, answer_accuracy=0.9),
        tables.unmeasured("failed", seed=2),
    ])  # fmt: skip
    figure = draw(table)
    (axes,) = panels(figure).values()
    assert texts(axes) == {(6, 64): "85.0*"}
    assert "* fewer seeds than planned" in legend(figure)


def medians(figure):
    gids = [str(patch.get_gid()) for axes in panels(figure).values() for patch in axes.patches]
    return [gid for gid in gids if gid.startswith("median")]


def test_a_median_on_the_other_side_of_90_percent_than_the_mean_is_marked_where_a_search_judged():
    shares = {8: (0.1, 0.2, 0.3), 16: (0.2, 0.95, 0.99), 32: (0.89, 0.89, 0.98), 64: (0.97,) * 3}
    table = pd.DataFrame([
        tables.row(size=2, dim=dim, seed=seed, answer_accuracy=share,
                   **{"recipe.learning_rate": "0.001"})
        for dim, found in shares.items() for seed, share in enumerate(found)
    ])  # fmt: skip
    first = tables.plan_of(table[table["seed"] == 0]).assign(**{"recipe.learning_rate": "0.001"})
    searched = draw(table, first)
    assert medians(searched) == ["median/above/2/16", "median/below/2/32"]
    assert {"◢ median seed ≥ 90 %, mean below", "◤ mean ≥ 90 %, median seed below"} <= set(
        legend(searched)
    )
    (axes,) = panels(searched).values()
    assert texts(axes)[2, 16] == "71.3"  # the mean stays
    planned = draw(table, tables.plan_of(table).assign(**{"recipe.learning_rate": "0.001"}))
    assert medians(planned) == [] and not any("median" in label for label in legend(planned))


def test_budget_and_setting_stand_under_the_picture():
    said = footer(draw(tables.quick(), budget="7 steps of 64"))
    assert "Budget: 7 steps of 64" in said
    assert said.startswith("made up. 3 layers; 4 heads; recipe fast.")
    assert "1,000 test sequences per cell; one seed" in said


def test_layers_that_most_models_have_are_said_once():
    models = {"standard": 3, "linear": 3, "hybrid": 4}
    table = pd.DataFrame([tables.row(model=m, layers=count) for m, count in models.items()])
    figure = draw(table)
    rows = ("Standard", "Linear", "Hybrid, 4 layers")
    assert set(panels(figure)) == {f"panel/{row}/Arithmetic" for row in rows}
    assert "3 layers unless a label says otherwise" in footer(figure)


def test_a_frontier_limited_by_the_budget_stays_dashed_where_smaller_dims_lack_results(monkeypatch):
    table = values(np.nan, 0.95, 0.99)
    table.loc[0, "status"] = "failed"
    limited = {("Arithmetic", "Standard", 2): SimpleNamespace(limited="yes")}
    monkeypatch.setattr(frontier_lines, "budgets_of", lambda *_: limited)
    figure = draw(table)
    (axes,) = panels(figure).values()
    gids = [item.get_gid() for item in axes.lines]
    assert gids == ["frontier/unsure", "frontier/limited/unsure"]
    assert not any(label.startswith("first D with ≥ 90 %") for label in legend(figure))
    assert any("hollow" in label for label in legend(figure))


def test_the_size_that_was_trained_on_is_said_where_others_are_measured(tmp_path, monkeypatch):
    table = pd.DataFrame([tables.row(size=n) for n in (2, 3)])
    figure = heatmap.figure(table, tables.plan_of(table), tables.experiment(), tmp_path)
    assert "Trained on" not in footer(figure)
    monkeypatch.setattr(heatmap, "trained_size", lambda run, folder: 2)
    figure = heatmap.figure(table, tables.plan_of(table), tables.experiment(), tmp_path)
    assert "Trained on n = 2, measured at each n." in footer(figure)


def test_what_is_not_planned_is_said_to_be_blank():
    table = pd.DataFrame([tables.row(size=n, dim=d) for n, d in ((2, 32), (2, 64), (3, 64))])
    assert "Blank: not planned." in footer(draw(table))
    assert "Blank" not in footer(draw(table[:2]))


def test_a_single_size_stands_in_the_title_and_rows_lie_close():
    one, two = tables.product(["lis"], ["standard", "linear"], [4], [8, 16]), values(0.1, 0.2)
    figure = draw(one)
    standard, linear = (panels(figure)[f"panel/{name}/LIS"] for name in ("Standard", "Linear"))
    assert standard.get_title() == "LIS\nn = 4, L = 11" and linear.get_title() == ""
    assert [label.get_text() for label in standard.get_yticklabels()] == [""]
    inches = (standard.get_position().y0 - linear.get_position().y1) * figure.get_size_inches()[1]
    assert inches < 0.1
    several = panels(draw(pd.concat([one, two, values(0.1, size=3)])))
    assert several["panel/Standard/LIS"].get_title() == "LIS\nn = 4, L = 11"
    arithmetic = several["panel/Standard/Arithmetic"]
    assert arithmetic.get_title() == "Arithmetic"
    assert [label.get_text() for label in arithmetic.get_yticklabels()] == [
        "n=2\nL=13",
        "n=3\nL=25",
    ]


def test_panels_without_a_planned_cell_are_blank_and_their_columns_labels_close_up():
    table = tables.product(["lis"], ["standard", "linear", "sparse"], [4, 5], [8, 16])
    figure = draw(pd.concat([table, tables.product(["ed"], ["linear"], [4, 5], [8, 16])]))
    shown = panels(figure)
    ed = [shown[f"panel/{name}/ED"] for name in ("Standard", "Linear", "Sparse")]
    assert [axes.get_visible() for axes in ed] == [False, True, False]
    assert [axes.get_title() for axes in ed] == ["", "ED", ""]
    shows = [axes.xaxis.get_tick_params()["labelbottom"] for axes in ed]
    assert shows == [False, True, False]
    assert shown["panel/Standard/LIS"].get_title() == "LIS"
    assert shown["panel/Sparse/LIS"].xaxis.get_tick_params()["labelbottom"]
    assert "Blank: not planned." in footer(figure)


def test_labels_of_low_rows_lie_level_and_panels_are_alike():
    table = pd.DataFrame([tables.row(model=m) for m in ("sliding_window", "delta_product")])
    figure = draw(table)
    labels = [
        text for text in figure.texts if text.get_text() in ("Sliding window", "DeltaProduct")
    ]
    assert [text.get_rotation() for text in labels] == [0, 0]
    assert len({round(axes.get_position().height, 6) for axes in panels(figure).values()}) == 1
    wide = draw(pd.DataFrame([tables.row(size=n) for n in (2, 3, 4, 5)]))
    assert [t.get_rotation() for t in wide.texts if t.get_text() == "Standard"] == [90]


def test_layers_make_rows_and_formats_make_columns_when_they_vary():
    table = pd.DataFrame(
        [tables.row(layers=m, format=f) for m in (3, 5) for f in ("cot", "direct")]
    )
    assert list(panels(draw(table))) == [
        f"panel/Standard, {m} layers/Arithmetic, {f}" for m in (3, 5) for f in ("cot", "direct")
    ]


def test_same_cell_and_seed_twice_shows_the_planned_one_and_says_so():
    planned = tables.row(answer_accuracy=0.5, finished_at="2030-01-01")
    other = tables.row(answer_accuracy=0.9, finished_at="2030-01-02", cell="another-budget")
    figure = draw(pd.DataFrame([planned, other]), tables.plan_of(pd.DataFrame([planned])))
    (axes,) = panels(figure).values()
    assert texts(axes) == {(6, 64): "50.0"}
    assert "1 row of the table left out" in footer(figure)


def test_everything_lies_inside_the_page():
    table = tables.figure_1((0, 1)).drop(index=[3, 5, 60, 61])
    table.loc[[7, 8], "status"] = "failed"
    small = [tables.row(layers=m, recipe=f"recipe-{m}", dim=32) for m in (3, 5)]
    for case in (table, tables.quick(), pd.DataFrame(small), pd.DataFrame(small[:1])):
        figure = draw(case, tables.plan_of(case))
        renderer = figure.canvas.get_renderer()
        page = figure.bbox
        boxes = [axes.get_tightbbox(renderer) for axes in figure.axes]
        boxes += [item.get_window_extent(renderer) for item in [*figure.texts, *figure.legends]]
        for box in boxes:
            assert box.x0 >= -1 and box.y0 >= -1
            assert box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1


def test_numbers_are_readable_on_every_colour():
    shares = np.linspace(0, 1, 101)
    table = values(*shares, dims=range(8, 8 + 4 * 101, 4))
    (axes,) = panels(draw(table)).values()
    for text, share in zip(axes.texts, shares, strict=True):
        cell = axes.collections[0].cmap(share)[:3]
        ink = 0.0 if text.get_color() == "black" else 1.0
        assert contrast(luminance(cell), luminance((ink,) * 3)) >= 4.5


def luminance(color):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)


def test_redrawing_gives_the_same_bytes(tmp_path):
    table = tables.quick()
    paths = [
        heatmap.draw(table, tables.plan_of(table), tables.experiment(), tmp_path / str(i))
        for i in range(2)
    ]
    assert [path.name for path in paths[0]] == ["heatmap.pdf", "heatmap.png"]
    for first, second in zip(*paths, strict=True):
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.0, "100"),
        (0.99996, ">99.9"),
        (0.9, "90.0"),
        (0.89996, "<90"),
        (0.8994, "89.9"),
        (0, "0.0"),
    ],
)
def test_percent_never_rounds_across_the_threshold_or_up_to_100(share, text):
    assert style.percent(share) == text
