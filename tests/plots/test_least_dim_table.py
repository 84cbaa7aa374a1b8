"""The table of least D: every text of it follows from a few made-up runs, by hand."""

import made_up_tables as tables
import pandas as pd
import pytest

from plots import least_dim_table
from plots.budgets import of_grid
from plots.cells import gather


def run(model, dim, accuracy, seed=0, **fields):
    return tables.row(model=model, dim=dim, answer_accuracy=accuracy, seed=seed, **fields)


def texts(table, plan=None):
    """Return the printed cells by model, a list a column each."""
    grid = gather(table, tables.plan_of(table) if plan is None else plan)
    frame = least_dim_table.rows(grid, of_grid(grid, None))
    printed = least_dim_table.printed_table(frame, grid, tables.experiment())
    return {row[0]: row[1:] for row in printed.rows}, printed


def test_a_cell_shows_d_and_every_run_that_decides_it():
    table = pd.DataFrame([
        *(run("standard", 32, share, seed) for seed, share in enumerate([1.0, 0.9996, 0.95])),
        *(run("standard", 16, share, seed) for seed, share in enumerate([0.1, 0.5, 0.2])),
        run("linear", 16, 0.3), run("linear", 64, 0.899), run("linear", 128, 0.7),
        run("sparse", 32, 0.91),
    ])  # fmt: skip
    found, printed = texts(table)
    assert found == {
        "Standard": ["32 (100 >99.9 95.0; 16: 10.0 50.0 20.0)"],
        "Linear": ["> 128 (64: 89.9)"],
        "Sparse": ["32 (91.0)"],
    }
    assert printed.header == ["model", "Arithmetic, n = 6, L = 85"]
    assert printed.marked == {(0, 1), (2, 1)}


def test_a_d_without_result_between_makes_an_upper_bound_and_what_never_ran_a_dash():
    table = pd.DataFrame([run("standard", 16, 0.5), run("standard", 64, 0.95)])
    planned = [table, pd.DataFrame([run("standard", 32, 0), run("linear", 64, 0)])]
    found, printed = texts(table, tables.plan_of(pd.concat(planned, ignore_index=True)))
    assert found == {"Standard": ["≤ 64 (95.0; 16: 50.0)"], "Linear": ["–"]}
    assert not printed.marked  # the only one


def test_sizes_and_tasks_are_columns():
    table = pd.DataFrame([
        run("standard", 16, 0.95), run("standard", 16, 0.2, size=3),
        run("linear", 16, 0.95, task="lis", size=10),
    ])  # fmt: skip
    found, printed = texts(table)
    assert printed.header[1:] == [
        "Arithmetic, n = 3, L = 25", "Arithmetic, n = 6, L = 85", "LIS, n = 10, L = 23"
    ]  # fmt: skip
    assert found == {
        "Standard": ["> 16 (20.0)", "16 (95.0)", "–"],
        "Linear": ["–", "–", "16 (95.0)"],
    }


@pytest.mark.parametrize("suffix", ["csv", "md", "tex"])
def test_it_is_written_in_three_forms(tmp_path, suffix):
    table = pd.DataFrame([run("standard", 16, 0.95), run("linear", 16, 0.2)])
    plan = tables.plan_of(table)
    paths = least_dim_table.draw(table, plan, tables.experiment(), tmp_path / "figures")
    (path,) = [path for path in paths if path.suffix == f".{suffix}"]
    assert "95.0" in path.read_text(encoding="utf-8")
