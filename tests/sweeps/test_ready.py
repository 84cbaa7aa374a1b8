"""What is refused before a sweep starts."""

import pytest

from common import UserError
from config.grid import cells, experiment_from
from sweeps.ready import require_buildable

BASE = ["data=quick", "recipe=quick", "logger=none", "task=lis"]


def planned(grid, *words):
    described = {"description": "made up", "base": [*BASE, *words], "grid": [grid]}
    return cells(experiment_from("made_up", described))


@pytest.mark.parametrize(
    ("grid", "words", "told"),
    [
        ({"model.dim": [16, 12]}, ["model.num_heads=4", "model.position=rope"], "not 3"),
        ({"task.size": [10, 9000]}, ["model=tensor"], "tensor attention: among"),
        ({"measure.task.size": [10, 40]}, ["task.size=10"], "capacity"),
    ],
)
def test_a_later_cell_that_cannot_be_built_is_refused(grid, words, told):
    first, second = planned(grid, *words)
    require_buildable([first])
    with pytest.raises(UserError, match=told):
        require_buildable([first, second])


def test_cells_that_differ_in_seed_or_measured_size_share_a_model(monkeypatch):
    built = []
    monkeypatch.setattr("sweeps.ready.check_buildable", built.append)
    grid = {"seed": [0, 1], "measure.task.size": [10, 12], "model.dim": [16, 32]}
    require_buildable(planned(grid, "task.size=10", "task.capacity=12"))
    assert [config.model.dim for config in built] == [16, 32]
