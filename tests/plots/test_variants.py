"""Cells that differ in something without a column get rows of their own."""

import made_up_tables as tables
import pandas as pd

from config.grid import experiment_from, planned
from plots import heatmap
from plots.variants import tell_apart


def experiment(**axes):
    grid = {"task": ["arithmetic"], "task.size": [2], "model": ["sparse"], "model.dim": [8, 16]}
    return experiment_from("x", {"description": "d", "grid": [grid | axes]})


def panels(table, plan, source):
    figure = heatmap.figure(*tell_apart(table, plan, source), tables.experiment())
    return [axes.get_gid() for axes in figure.axes if str(axes.get_gid()).startswith("panel")]


def measured(plan):
    rows = zip(plan["cell"], plan["dim"], range(len(plan)), strict=True)
    return pd.DataFrame([
        tables.row(model="sparse", size=2, dim=dim, recipe="fast", cell=cell,
                   answer_accuracy=i / 10)
        for cell, dim, i in rows
    ])  # fmt: skip


def test_a_mixers_parameter_makes_rows():
    source = experiment(**{"model.mixer.block_size": [2, 4]})
    plan = planned(source)
    assert panels(measured(plan), plan, source) == [
        "panel/Sparse, fast, block_size=2/Arithmetic",
        "panel/Sparse, fast, block_size=4/Arithmetic",
    ]


def test_a_tasks_parameter_makes_columns():
    source = experiment(**{"task.order": ["leftmost", "growth"]})
    plan = planned(source)
    assert panels(measured(plan), plan, source) == [
        "panel/Sparse/Arithmetic, cot, order=growth",
        "panel/Sparse/Arithmetic, cot, order=leftmost",
    ]


def test_nothing_changes_where_the_columns_tell_cells_apart():
    source = experiment(seed=[0, 1])
    plan = planned(source)
    table, same = tell_apart(measured(plan), plan, source)
    pd.testing.assert_frame_equal(same, plan)
    assert set(table["recipe"]) == {"fast"}
