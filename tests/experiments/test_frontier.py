"""Climbing D: which cells are wanted next."""

from experiments.grid import cell_of
from experiments.plan import groups, next_of_group


def cell(dim, seed, model="standard"):
    return cell_of([f"model={model}", f"model.dim={dim}", f"seed={seed}"])


def climb(group, accuracy_at):
    """Return the D measured, in order, where a cell of D has the accuracy ``accuracy_at(D)``."""
    accuracies, order = {}, []
    while wanted := next_of_group(group, accuracies):
        dims = {c.identity["dim"] for c in wanted}
        assert len(dims) == 1
        order += dims
        accuracies |= {c.name: accuracy_at(c.identity["dim"], c.config.seed) for c in wanted}
    return order


def test_the_climb_stops_one_step_above_the_first_that_passes():
    grid = [cell(dim, seed) for dim in (8, 64, 16, 32) for seed in (0, 1, 2)]
    (group,) = groups(grid)
    assert list(group) == [8, 16, 32, 64]
    assert climb(group, lambda dim, seed: 0.95 if dim >= 16 else 0.3) == [8, 16, 32]
    assert climb(group, lambda dim, seed: 0.95) == [8, 16]
    assert climb(group, lambda dim, seed: 0.3) == [8, 16, 32, 64]
    one_lucky = climb(group, lambda dim, seed: 0.95 if dim >= 32 or (dim, seed) == (16, 0) else 0.3)
    assert one_lucky == [8, 16, 32, 64]


def test_cells_that_differ_in_more_than_d_and_seed_climb_apart():
    grid = [cell(8, 0), cell(16, 1), cell(8, 0, "linear")]
    assert [len(group) for group in groups(grid)] == [2, 1]
