import dataclasses
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hydra import compose
from hypothesis import given
from hypothesis import strategies as st

from common import UserError
from config.compose import CONF_DIR, compose_plain, config_search_path, plain
from config.grid import (
    cells,
    experiment_from,
    load_experiment,
    matches,
    planned,
    points,
)
from config.identity import cell_name
from config.schema import validate_cell
from sweeps.plan import Sweep

SHIPPED = sorted(path.stem for path in (CONF_DIR / "experiment").glob("*.yaml"))
PAPER_CELLS = {"figure1": 204, "figure2": 48, "figure3": 72, "table2": 60}


def small(**content):
    return experiment_from("small", {"description": "x", **content})


@pytest.mark.parametrize("name", SHIPPED)
def test_the_fast_composition_is_hydras_own(name):
    """The grid sets values in plain data; a worker lets Hydra compose.  Same cell, same name."""
    some = cells(load_experiment(name))[::17]
    with config_search_path():
        for cell in some:
            composed = validate_cell(plain(compose("train", overrides=list(cell.overrides))))
            assert composed == cell.config
            assert cell_name(composed) == cell.name


@pytest.mark.parametrize(("name", "count"), PAPER_CELLS.items())
def test_the_papers_grids_are_whole(name, count):
    plan = planned(load_experiment(name))
    assert len(plan) == count == plan["cell"].nunique()
    assert set(plan["layers"]) == ({5} if name == "figure3" else {3})
    assert not len(plan[(plan["task"] == "arithmetic") & (plan["dim"] == 1024)])


def test_table2_is_part_of_figure1():
    names = {name: set(planned(load_experiment(name))["cell"]) for name in ("table2", "figure1")}
    assert names["table2"] < names["figure1"]


def test_products_overlap_once_and_exclusions_hold():
    experiment = small(
        grid=[
            {"task.size": [2, 3], "model.dim": [8, 16]},
            {"task.size": [3, 4], "model.dim": [16]},
        ],
        exclude=[{"task.size": 2, "model.dim": [16]}],
    )
    assert [(c.config.task["size"], c.config.model.dim) for c in cells(experiment)] == [
        (2, 8),
        (3, 8),
        (3, 16),
        (4, 16),
    ]


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True),
    dims=st.lists(st.sampled_from([8, 16, 32]), min_size=1, max_size=3, unique=True),
    left_out=st.sampled_from([8, 16, 32, 64]),
)
def test_points_are_the_product_without_the_excluded(sizes, dims, left_out):
    experiment = small(grid=[{"a": sizes, "b": dims}], exclude=[{"b": left_out}])
    expected = [{"a": a, "b": b} for a in sizes for b in dims if b != left_out]
    assert list(points(experiment)) == expected


def test_an_empty_exclusion_excludes_nothing():
    assert not matches({"a": 1}, {})


def test_later_overrides_win_and_groups_come_first():
    experiment = small(base=["recipe.steps=7", "recipe=fast"], grid=[{"seed": [0]}])
    (cell,) = cells(experiment, ["recipe=quick", "recipe.steps=9"])
    assert (cell.config.recipe.name, cell.config.recipe.steps) == ("quick", 9)


@pytest.mark.parametrize(
    "override",
    [
        "logger=none", "device=cpu", "runs_dir=/elsewhere", "experiment_name=other", "threads=2",
        "checkpoint_seconds=5", "retry_failed=false", "micro_batch_size=8", "compile=graphs",
        "evaluation_memory_mb=100",
    ],
)  # fmt: skip
def test_what_decides_no_result_changes_no_name(override):
    experiment = small(grid=[{"seed": [0]}])
    (one,), (other,) = cells(experiment), cells(experiment, [override])
    assert one.name == other.name


@pytest.mark.parametrize(
    "override",
    [
        "seed=1", "task.size=5", "task=lis", "model=linear", "model.dim=32", "model.num_layers=2",
        "recipe.steps=10", "recipe.learning_rate=0.001", "data.train=7", "data.seed=1",
        "model=sparse", "task.format=direct",
    ],
)  # fmt: skip
def test_what_decides_the_result_changes_the_name(override):
    experiment = small(grid=[{"seed": [0]}])
    (one,), (other,) = cells(experiment), cells(experiment, [override])
    assert one.name != other.name


def test_an_edited_data_file_makes_a_new_cell(tmp_path):
    file = tmp_path / "test.txt"
    experiment = small(grid=[{"seed": [0]}])
    names = []
    for content in ("1 + 1 = 2 \n", "1 + 2 = 3 \n", "1 + 1 = 2 \n"):
        file.write_text(content)
        names.append(cells(experiment, [f"data.file={file}"])[0].name)
    moved = file.rename(tmp_path / "elsewhere.txt")
    names.append(cells(experiment, [f"data.file={moved}"])[0].name)
    assert names[0] == names[2] == names[3] != names[1]


def test_a_name_is_the_same_in_every_process():
    code = (
        "from config.grid import cells, load_experiment\n"
        "print(' '.join(c.name for c in cells(load_experiment('quick'))))"
    )
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": "42"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [cell.name for cell in cells(load_experiment("quick"))]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"grid": [{"task.sizes": [2]}]}, "task.sizes"),
        ({"grid": [{"model.dim": [7]}]}, "dim"),
        ({"grid": "all"}, "grid"),
        ({"grid": [{"seed": [0]}], "figure": ["heatmap"]}, "figure"),
        ({}, "grid"),
    ],
)
def test_bad_experiments_are_named(content, named):
    with pytest.raises(UserError, match=named):
        cells(small(**content))


def test_every_cell_can_be_built_by_its_own_words():
    """What a person copies from the plan into train.py gives that cell."""
    cell = cells(load_experiment("figure3"))[5]
    again = validate_cell(compose_plain("train", cell.overrides))
    assert dataclasses.asdict(again) == dataclasses.asdict(cell.config)


def test_a_task_whose_yaml_gives_no_name_has_its_class_s():
    content = compose_plain("train", ["task=lis"])
    del content["task"]["name"]
    assert validate_cell(content).task["name"] == "lis"


def test_an_outsiders_mixer_and_task_join_the_grid(tmp_path):
    """One Python file and one YAML each, outside the repository, by --config-dir."""
    (tmp_path / "my_parts.py").write_text(
        textwrap.dedent(
            """
            import torch
            from models.mixer import Mixer
            from tasks.lis import LIS

            class RunningMean(Mixer):
                def __init__(self, dim, num_heads, max_len, dropout=0.0, position="none", gain=1.0):
                    super().__init__(dim, num_heads, max_len, dropout, position)
                    self.gain = gain
                    self.out = torch.nn.Linear(dim, dim)

                def forward(self, x):
                    count = torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]
                    return self.gain * self.out(x.cumsum(1) / count)

            class ShortLIS(LIS):
                name = "short_lis"
            """
        )
    )
    for group, name, text in (
        (
            "model",
            "mean",
            "defaults: [standard]\nname: mean\n"
            "mixer: {_target_: my_parts.RunningMean, gain: 2.0}\n",
        ),
        ("task", "short_lis", "name: short_lis\n_target_: my_parts.ShortLIS\nsize: 4\n"),
        (
            "experiment",
            "mine",
            "description: mine\nbase: [task=short_lis, recipe=quick]\n"
            "grid: [{model: [mean, standard], model.dim: [8]}]\nfigures: [heatmap]\n",
        ),
    ):
        (tmp_path / "conf" / group).mkdir(parents=True, exist_ok=True)
        (tmp_path / "conf" / group / f"{name}.yaml").write_text(text)
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    tiny = (
        '"recipe.steps=4","recipe.validate_every=2","data.train=200","data.test=20",'
        '"data.validation=20"'
    )
    done = subprocess.run(
        [sys.executable, str(root / "sweep.py"), f"--config-dir={tmp_path / 'conf'}",
         "experiment=mine", "logger=none", f"overrides=[{tiny}]"],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "results/mine/results.csv").read_text().splitlines()
    assert len(rows) == 3
    assert any(",mean,3,4,8," in row and ",done," in row for row in rows)
    assert list((tmp_path / "results/mine/figures").glob("heatmap*.pdf"))
    drawn = subprocess.run(
        [sys.executable, "-m", "plots", "experiment=mine", "--config-dir", str(tmp_path / "conf")],
        env={**env, "PYTHONPATH": f"{root}:{tmp_path}"},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert drawn.returncode == 0, drawn.stderr
    report = (tmp_path / "results/mine/report.html").read_text()
    assert "python sweep.py --config-dir=conf experiment=mine" in report


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"grid": [{"model.dim": 8}]}, r"model.dim: 8: must be a list; write model.dim: \[8\]"),
        ({"grid": {"model.dim": [8]}}, r"grid: .*: must be a list; write grid: \[\{.*\}\]"),
        (
            {"base": "task=lis", "grid": [{"seed": [0]}]},
            r"base: 'task=lis': must be a list; write base: \[task=lis\]",
        ),
        ({"grid": "a\nb"}, r"grid: 'a\\nb': must be a list; write grid: \['a\\nb'\]$"),
        ({"bse": [], "grid": [{"seed": [0]}]}, r"unknown key bse; did you mean base\?"),
    ],
)
def test_a_mistake_in_an_experiment_is_named_with_the_remedy(change, line):
    with pytest.raises(UserError, match=f"^experiment small: {line}"):
        small(**change)


def test_a_misspelt_key_of_the_grid_is_named_with_its_experiment():
    experiment = small(grid=[{"task": ["lis"], "model.dims": [8]}])
    with pytest.raises(UserError, match=r"^experiment small: .*did you mean model.dim\?"):
        cells(experiment)


def test_an_empty_grid_is_named():
    with pytest.raises(UserError, match="experiment small: its grid is empty; write a list of"):
        small(grid=[])


def test_a_grid_of_which_all_is_excluded_is_named(tmp_path):
    experiment = small(grid=[{"task": ["lis"]}], exclude=[{"task": "lis"}])
    with pytest.raises(UserError, match="experiment small: exclude leaves out all of its grid"):
        Sweep(experiment, str(tmp_path / "results"), str(tmp_path / "runs"))


def test_a_key_of_the_grid_without_values_is_named():
    with pytest.raises(UserError, match="experiment small: grid: seed has no value"):
        small(grid=[{"task": ["lis"], "seed": []}])
