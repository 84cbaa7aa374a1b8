"""Learning curves and error positions: the lines are the files' numbers."""

import json

import made_up_tables as tables
import numpy as np
import pandas as pd
import pytest

from common import UserError
from plots import error_positions, learning_curves
from plots.budgets import of_grid
from plots.cells import gather


@pytest.fixture
def example(tmp_path):
    table = tables.product(["lis"], ["standard", "sparse"], [4, 5], [32, 64], seeds=(0, 1))
    tables.write_attachments(table, tmp_path)
    return table, tables.plan_of(table), tmp_path


def panel(figure, row, column):
    return next(axes for axes in figure.axes if axes.get_gid() == f"panel/{row}/{column}")


def test_a_line_per_seed_and_dimension_against_steps_and_seconds(example):
    table, plan, folder = example
    drawn = learning_curves.figures(table, plan, tables.experiment(), folder)
    assert list(drawn) == ["learning_curves_lis", "learning_curves_seconds_lis"]
    cell = table.iloc[0]
    curve = pd.read_csv(folder / "curves" / f"{cell['cell']}.csv")
    for name, column in zip(drawn, ("step", "seconds"), strict=True):
        axes = panel(drawn[name], "n = 4, L = 11", "Standard")
        lines = {line.get_gid(): line for line in axes.lines if "/" in str(line.get_gid())}
        assert set(lines) == {"32/0", "32/1", "64/0", "64/1"}
        assert list(lines["32/0"].get_xdata()) == list(curve[column])
        exact = 100 * curve["validation_chain_exact_match"].to_numpy()
        assert lines["32/0"].get_ydata() == pytest.approx(exact)


def test_one_training_measured_at_two_sizes_is_one_line_at_the_size_trained_on(example):
    table, plan, folder = example
    for cell in table["cell"]:
        (folder / "configs" / f"{cell}.yaml").write_text("task: {size: 4}\nrecipe: nonsense\n")
    drawn = learning_curves.figures(table, plan, tables.experiment(), folder)
    panels = {axes.get_gid(): axes for axes in drawn["learning_curves_lis"].axes}
    assert set(panels) == {"panel/n = 4, L = 11/Standard", "panel/n = 4, L = 11/Sparse"}
    lines = [line.get_gid() for line in panels["panel/n = 4, L = 11/Sparse"].lines]
    assert [name for name in lines if name is not None] == ["32/0", "32/1", "64/0", "64/1"]
    found = of_grid(gather(table, plan), folder)
    shown = {(row, size): item.least["all"].text() for (_, row, size), item in found.items()}
    assert shown["Standard", 5] == shown["Sparse", 5] == "?" != shown["Standard", 4]


def said(figure):
    return " ".join(text.get_text() for text in figure.texts)


def legend_of(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_seeds_are_counted_for_each_cell(example):
    table, plan, folder = example
    alone = table[~((table["dim"] == 32) & (table["seed"] == 1))]
    figure = learning_curves.figures(alone, plan, tables.experiment(), folder)[
        "learning_curves_lis"
    ]
    assert "A line per seed, 1 to 2 seeds of 2 planned for each cell." in said(figure)
    figure = learning_curves.figures(table, plan, tables.experiment(), folder)[
        "learning_curves_lis"
    ]
    assert "A line per seed, 2 seeds." in said(figure)


def test_a_run_that_solved_its_task_ends_in_a_ring(example):
    table, plan, folder = example
    table["stopped"] = ["solved", *["budget"] * (len(table) - 1)]
    solved = table.iloc[0]
    (folder / "configs" / f"{solved['cell']}.yaml").write_text("recipe: {stop_at: 0.995}\n")
    figure = learning_curves.figures(table, plan, tables.experiment(), folder)[
        "learning_curves_lis"
    ]
    ringed = [
        (axes.get_gid(), line.get_gid(), line.get_markevery())
        for axes in figure.axes
        for line in axes.lines
        if line.get_marker() == "o"
    ]
    assert ringed == [("panel/n = 4, L = 11/Standard", "32/0", [-1])]
    assert "solved at 99.5 %: training ends early" in legend_of(figure)
    table["stopped"] = "budget"
    figure = learning_curves.figures(table, plan, tables.experiment(), folder)[
        "learning_curves_lis"
    ]
    assert not any("solved" in label for label in legend_of(figure))


def test_curves_over_seconds_name_the_machine(example):
    table, plan, folder = example
    table["device"] = "cpu: made up"
    steps, seconds = learning_curves.figures(table, plan, tables.experiment(), folder).values()
    assert "Seconds on cpu: made up." in said(seconds)
    assert "Seconds on" not in said(steps)


def test_the_legend_has_the_dimensions_that_ran(example):
    table, plan, folder = example
    figures = learning_curves.figures(
        table[table["dim"] == 64], plan, tables.experiment(), folder
    ).values()
    assert [legend_of(figure) for figure in figures] == [["D = 64"]] * 2


def test_a_dimension_looks_the_same_in_every_task(example):
    table, _, folder = example
    other = tables.product(["ed"], ["standard"], [2], [64], seeds=(0,))
    tables.write_attachments(other, folder)
    both = pd.concat([table, other], ignore_index=True)
    drawn = learning_curves.figures(both, tables.plan_of(both), tables.experiment(), folder)
    looks = {
        name: {(tuple(line.get_color()), line.get_linestyle(), line.get_linewidth())
               for axes in figure.axes for line in axes.lines
               if str(line.get_gid()).startswith("64/")}
        for name, figure in drawn.items()
    }  # fmt: skip
    assert looks["learning_curves_ed"] == looks["learning_curves_lis"]
    assert len(looks["learning_curves_ed"]) == 1


def test_time_to_90_is_the_first_validation_that_reaches_it(example):
    table, plan, folder = example
    path = folder / "curves" / f"{table['cell'][0]}.csv"
    path.write_text(
        "step,seconds,validation_chain_exact_match\n0,0,0\n10,2,0.9\n20,4,0.5\n30,6,1\n"
    )
    (folder / "curves" / f"{table['cell'][1]}.csv").unlink()
    frame = learning_curves.time_to_90(table, plan, folder).set_index("cell")
    assert frame.loc[table["cell"][0], ["steps_to_90", "seconds_to_90"]].tolist() == [10, 2.0]
    assert frame.loc[table["cell"][0], "best_validation"] == 1.0
    assert frame.loc[table["cell"][1], ["steps_to_90", "best_validation"]].isna().all()
    figure = next(iter(learning_curves.figures(table, plan, tables.experiment(), folder).values()))
    assert "1 runs have no curve file" in " ".join(text.get_text() for text in figure.texts)


def test_survival_by_hand():
    x, share = error_positions.survival([[0, 10, 100], [1, 0, 90], [2, 45, 90], [3, 0, 0]])
    assert list(x) == [0, 1, 2]
    assert share == pytest.approx([0.9, 0.9, 0.45])


def test_survival_is_right_for_chains_of_different_length():
    """Half the chains end at once without a mistake; the others break at the second place."""
    assert error_positions.survival([[0, 0, 100], [1, 50, 50]])[1] == pytest.approx([1.0, 0.0])


def test_error_figures_pool_seeds_and_draw_each_dimension(example):
    table, plan, folder = example
    drawn = error_positions.figures(table, plan, tables.experiment(), folder)
    assert list(drawn) == ["error_positions_lis", "error_positions_steps_lis"]
    axes = panel(drawn["error_positions_lis"], "n = 5, L = 13", "Sparse")
    assert [line.get_gid() for line in axes.lines] == ["32", "64"]
    part = table[(table["size"] == 5) & (table["model"] == "sparse") & (table["dim"] == 32)]
    counts = [
        np.array(json.loads((folder / "errors" / f"{cell}.json").read_text())["by_position"])
        for cell in part["cell"]
    ]
    missed, reached = (sum(c[:, i] for c in counts) for i in (1, 2))
    assert axes.lines[0].get_ydata() == pytest.approx(100 * np.cumprod(1 - missed / reached))


def test_panels_without_files_say_so(example, tmp_path):
    table, plan, _ = example
    for module in (learning_curves, error_positions):
        figure = next(
            iter(module.figures(table, plan, tables.experiment(), tmp_path / "none").values())
        )
        shown = {text.get_text() for axes in figure.axes for text in axes.texts}
        assert shown <= {"no curves", "no records"} and shown


@pytest.mark.parametrize("content", ["", "step,seconds\n1,2\n", "step\x00", "a,b\nx"])
def test_a_damaged_curve_is_named(example, content):
    table, plan, folder = example
    path = folder / "curves" / f"{table['cell'][0]}.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=path.name):
        learning_curves.time_to_90(table, plan, folder)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"by_position": [[1]], "by_step": []}'])
def test_a_damaged_error_record_is_named(example, content):
    table, plan, folder = example
    path = folder / "errors" / f"{table['cell'][0]}.json"
    path.write_text(content)
    with pytest.raises(UserError, match=path.name):
        error_positions.error_kinds(table, plan, folder)


def test_error_kinds_lists_disagreements(example):
    table, plan, folder = example
    frame = error_positions.error_kinds(table, plan, folder)
    assert len(frame) == len(table)
    assert set(frame["answer_right_chain_wrong"]) == {3}
