"""Expanding an experiment's YAML into cells, and choosing the next D with strategy=frontier."""

import itertools

import pytest
import yaml

from common import CONF_DIR, UserError, compose_plain
from experiments.config import cell_from, measured_task
from experiments.display import labels
from experiments.grid import cell_of, cells, experiment_from, load_experiment, quoted, with_model
from experiments.names import cell_name
from experiments.plan import groups, next_of_group
from experiments.row import model_costs
from models.build import build_model
from tasks.task import build_task

SHIPPED = sorted(path.stem for path in (CONF_DIR / "experiment").glob("*.yaml"))


def experiment(**content):
    return experiment_from("mine", {"description": "", **content})


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_experiment_lists_distinct_cells_that_can_run(name):
    found = cells(load_experiment(name))
    assert len({cell.name for cell in found}) == len(set(labels(found).values())) == len(found) > 0
    for cell in (found[0], found[-1]):  # a launcher's worker composes it with Hydra
        assert cell_name(cell_from(compose_plain("train", cell.overrides))) == cell.name
        measured_task(cell.config, build_task(cell.config.task))
    least = min(found, key=lambda cell: (cell.config.model.dim, cell.identity["size"]))
    task = build_task(least.config.task)
    model_costs(build_model(least.config.model, task), task)


def test_the_wandb_sweep_is_of_valid_cells():
    swept = yaml.safe_load((CONF_DIR / "wandb_sweep.yaml").read_text())
    assert swept["program"] == "train.py" and swept["command"][-1] == "${args_no_hyphens}"
    values = {key: given.get("values", [given.get("value")])[0]
              for key, given in swept["parameters"].items()}  # fmt: skip
    config = cell_of([f"{key}={value}" for key, value in values.items()]).config
    assert (config.experiment_name, config.task["size"]) == ("wandb_sweep", 4)
    build_model(config.model, build_task(config.task))


def test_products_and_repetitions():
    grid = [
        {"task.size": [3, 4], "model": ["standard", "linear"]},
        {"task.size": [4, 5], "model": ["linear"]},
    ]
    found = [(c.identity["size"], c.identity["model"]) for c in cells(experiment(grid=grid))]
    assert found == [*itertools.product((3, 4), ("standard", "linear")), (5, "linear")]
    found = cells(experiment(grid=[{"recipe.precision": ["float32", "bfloat16"]}]))
    assert len(set(labels(found).values())) == 2


def test_with_model_replaces_the_models_of_an_experiment():
    found = cells(with_model(load_experiment("gates"), "lstm"))
    assert {cell.identity["model"] for cell in found} == {"standard", "lstm"}


def test_products_do_not_share_a_mapping_of_the_base():
    grid = [{"model.mixer.block_size": [8]}, {"seed": [0]}]
    mixer = "model.mixer={_target_: models.sparse.SparseAttention, block_size: 4}"
    found = cells(experiment(grid=grid, base=["model=sparse", mixer]))
    assert [cell.config.model.mixer["block_size"] for cell in found] == [8, 4]


def test_overrides_apply_to_every_cell_and_the_last_one_wins():
    grid = [{"seed": [0, 1]}]
    found = cells(experiment(grid=grid, base=["recipe.steps=5"]), ["recipe.steps=7", "seed=4"])
    assert [(c.config.recipe.steps, c.config.seed) for c in found] == [(7, 4)]


def test_values_are_parsed_as_by_hydra_in_a_worker():
    for value in ("/home/o'neil/runs", "off", "1:30", "C:\\runs\\", "a\\'b"):
        assert cell_of([f"runs_dir={quoted(value)}"]).config.runs_dir == value
    assert cell_of(["experiment_name=off"]).config.experiment_name == "off"
    mixers = [{"_target_": "models.sparse.SparseAttention", "block_size": 4}, "standard"]
    hybrid = cell_of(["model=hybrid", f"model.mixers={quoted(mixers)}"])
    assert hybrid.config.model.mixers[0] == mixers[0]
    mixed = ["é", {"a": "C:\\"}, None, 0.5]
    word = cell_of(["task=word", f"task.letters={quoted(mixed)}"])
    assert word.config.task["letters"] == mixed
    for words in (
        [f"recipe.rates.hidden={quoted({'factor': 2.0})}"],
        ["model.dim=24", "model=linear", "data.validation=${model.dim}"],
        ["model=sparse", "model.mixer.block_size=8",
         "model.mixer={_target_: models.sparse.SparseAttention, block_size: 4}"],
    ):  # fmt: skip
        cell = cell_of(words)
        assert cell_name(cell_from(compose_plain("train", cell.overrides))) == cell.name
    assert cell_of(["data.validation=${model.dim}", "model.dim=24"]).config.data.validation == 24


@pytest.mark.parametrize(
    ("grid", "message"),
    [([], "grid: .* at least 1"), ([{"seed": 0}], r"grid\.0\.seed"),
     ([{"model.dmi": [8]}], "did you mean model.dim"), ([{"task.size": [2.5]}], "size"),
     ([{"+model.dim": [8]}], "dim exists; write it without"),
     ([{"recipe.steps": [-1]}], r"recipe\.steps=-1")],
)  # fmt: skip
def test_errors_in_an_experiment_are_reported(grid, message):
    with pytest.raises(UserError, match=message):
        for cell in cells(experiment(grid=grid)):
            build_task(cell.config.task)
    with pytest.raises(UserError, match="figurs"):
        experiment(grid=[{"seed": [0]}], figurs=[])


def cell_at(dim, seed, model="standard"):
    return cell_of([f"model={model}", f"model.dim={dim}", f"seed={seed}"])


def climb(group, accuracy_at):
    """Return the measured D in order, given the accuracy `accuracy_at(D, seed)` of each cell."""
    accuracies, order = {}, []
    while wanted := next_of_group(group, accuracies):
        dims = {c.identity["dim"] for c in wanted}
        assert len(dims) == 1
        order += dims
        accuracies |= {c.name: accuracy_at(c.identity["dim"], c.config.seed) for c in wanted}
    return order


def test_frontier_stops_one_step_above_the_first_passing_dim():
    grid = [cell_at(dim, seed) for dim in (8, 64, 16, 32) for seed in (0, 1, 2)]
    (group,) = groups(grid)
    assert list(group) == [8, 16, 32, 64]
    assert climb(group, lambda dim, seed: 0.95 if dim >= 16 else 0.3) == [8, 16, 32]
    assert climb(group, lambda dim, seed: 0.95) == [8, 16]
    assert climb(group, lambda dim, seed: 0.3) == [8, 16, 32, 64]
    one_lucky = climb(group, lambda dim, seed: 0.95 if dim >= 32 or (dim, seed) == (16, 0) else 0.3)
    assert one_lucky == [8, 16, 32, 64]
    assert climb(group, lambda dim, seed: 0.3 if seed == 2 else 0.95) == [8, 16]  # not the mean


def test_frontier_adds_seeds_until_three_agree():
    (group,) = groups([cell_at(dim, seed) for dim in (8, 16) for seed in range(5)])
    two_lucky = climb(group, lambda dim, seed: 0.95 if dim == 16 or seed in (0, 2) else 0.3)
    assert two_lucky == [8, 8, 8, 16]  # three seeds, then one and one more
    assert len(next_of_group(group, {})) == 3


def test_cells_of_one_group_differ_only_in_dim_and_seed():
    grid = [cell_at(8, 0), cell_at(16, 1), cell_at(8, 0, "linear")]
    assert [len(group) for group in groups(grid)] == [2, 1]
