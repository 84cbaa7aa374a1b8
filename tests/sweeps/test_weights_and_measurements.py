"""Weights trained once, measured in several ways; weights that nobody trains; cells run again."""

import json
import textwrap

import numpy as np
import pandas as pd
import pytest
import yaml
from commands import TINY

import evaluate
from config.build import build_model, build_task
from config.calls import EvaluateCall, FileCall
from config.columns import described, settings_of, varying
from config.compose import compose_plain
from config.files import read_config
from config.grid import cells, experiment_from, planned
from config.identity import cell_name, weights_name
from config.schema import validate_cell
from models.flops import total_flops
from sweeps.weights import load_data
from training.machine import Machine
from training.order import BatchOrder

LIS = [
    word for word in TINY if not word.startswith("task")
] + ["task=lis", "task.size=4", "task.capacity=6"]  # fmt: skip


def table(folder, name="manual"):
    return pd.read_csv(folder / "results" / name / "results.csv", dtype={"cell": str})


def cell(*words):
    return validate_cell(compose_plain("train", words))


def test_a_plain_cell_has_one_name_and_another_measurement_its_own():
    plain, longer = cell(*LIS), cell(*LIS, "measure.task.size=6")
    assert cell_name(plain) == weights_name(plain) == weights_name(longer) != cell_name(longer)
    assert cell_name(cell(*LIS, "measure.task.size=4")) == cell_name(plain)
    assert cell_name(cell(*LIS, "measure.count=20")) == cell_name(plain)  # data.test is 20
    others = ["measure.count=5", "measure.split=train", "measure.split=validation"]
    assert len({cell_name(cell(*LIS, word)) for word in others} | {cell_name(plain)}) == 4


def test_weights_are_trained_once_and_measured_at_other_sizes(command):
    assert command("train.py", *LIS).status == 0
    [checkpoint] = command.folder.glob("runs/*/checkpoint.pt")
    trained = checkpoint.stat().st_mtime_ns
    for size in (5, 6):
        outcome = command("train.py", *LIS, f"measure.task.size={size}")
        assert outcome.status == 0, outcome.err
        assert f"lis n={size} standard D=8 seed=0 (trained at n=4)" in outcome.out
    assert [checkpoint] == list(command.folder.glob("runs/*/checkpoint.pt"))
    assert checkpoint.stat().st_mtime_ns == trained
    rows = table(command.folder)
    assert rows["size"].tolist() == [4, 5, 6]
    assert rows["max_len"].tolist() == [11, 13, 15]
    assert rows["weights"].nunique() == 1 and rows["cell"].nunique() == 3
    assert rows["steps"].tolist() == [4, 4, 4]
    assert len(list((command.folder / "results/manual/curves").iterdir())) == 3


def test_evaluate_measures_at_another_size_by_hand(command):
    assert command("train.py", *LIS, "measure.task.size=6").status == 0
    [row] = table(command.folder).to_dict("records")
    for run in (row["cell"], row["weights"]):
        outcome = command("evaluate.py", f"run=runs/{run}", "task.size=6")
        last = json.loads(outcome.out.splitlines()[-1])
        assert {key: last[key] for key in ("answer_accuracy", "n_test")} == {
            "answer_accuracy": row["answer_accuracy"], "n_test": 20,
        }  # fmt: skip
    line = command("evaluate.py", f"run=runs/{row['cell']}", "task.size=7").line
    assert "capacity" in line


def test_evaluate_keeps_the_split_that_the_cell_measures(command):
    assert command("train.py", *LIS, "measure.split=train").status == 0
    [row] = table(command.folder).to_dict("records")
    folder = command.folder / "runs" / row["cell"]
    call = EvaluateCall(folder, {}, FileCall(None), 3, None, None, False, Machine())
    asked = evaluate.config_of(folder, call).measure
    assert (asked.split, asked.count) == ("train", 3)
    told = command("evaluate.py", f"run=runs/{row['cell']}", "count=3")
    assert told.status == 0 and json.loads(told.out.splitlines()[-1])["n_test"] == 3
    refused = command("evaluate.py", f"run=runs/{row['cell']}", "task.size=5")
    assert refused.status == 2 and "leave measure.split=test" in refused.line


def test_a_split_is_of_the_task_trained_on(command):
    told = command("train.py", *LIS, "measure.split=train", "measure.task.size=6")
    assert told.status == 2 and "with measure.task.size new sequences are drawn" in told.line


def test_training_flops_are_those_of_each_length(command):
    """TINY's Arithmetic mixes lengths; attention's cost is not that of the mean length."""
    assert command("train.py", *TINY).status == 0
    [row] = table(command.folder).to_dict("records")
    folder = command.folder / "runs" / row["cell"]
    config, _ = read_config(folder / "config.yaml")
    task = build_task(config.task)
    model, train = build_model(config.model, task, 0.0), load_data(config, task).train
    costs = [3 * total_flops(model.flops(int(length) - 1)) for length in train.lengths]
    batches = BatchOrder(len(costs), config.recipe.batch_size, config.seed)
    trained = sum(len(batches.indices(step)) for step in range(row["steps"]))
    assert row["flops_training"] == round(trained * np.mean(costs))


def test_measurements_side_by_side_train_their_weights_once(command):
    outcome = command("train.py", "-m", *LIS, "measure.task.size=4,5,6")
    assert outcome.status == 0, outcome.err
    assert len(list(command.folder.glob("runs/*/checkpoint.pt"))) == 1
    assert table(command.folder)["size"].tolist() == [4, 5, 6]


def test_measured_prompts_were_not_trained_on(command):
    """Size 2 of Arithmetic is in the training mixture of size 3: its prompts must be new ones."""
    words = [w for w in TINY if "task.size" not in w] + ["task.size=3"]
    outcome = command("train.py", *words, "measure.task.size=2")
    assert outcome.status == 0, outcome.err
    few = command("train.py", *words, "measure.task.size=1", "measure.count=5000")
    assert few.status == 2 and "distinct prompts" in few.line


def test_a_model_without_room_is_refused_before_training(command):
    words = [word for word in LIS if "capacity" not in word]
    outcome = command("train.py", *words, "measure.task.size=6")
    assert outcome.status == 2 and "task.capacity" in outcome.line
    assert not (command.folder / "runs").exists()


CONSTRUCTED = """
    import torch
    from functools import partial
    from models.standard import StandardAttention
    from models.transformer import Transformer


    def always(task, token, dim=4):
        \"\"\"A model that writes one token, whatever it reads.\"\"\"
        model = Transformer(
            len(task.vocabulary), task.room.max_len, dim, 1, 1, partial(StandardAttention)
        )
        with torch.no_grad():
            model.head.weight.zero_()
            model.head.bias.zero_()
            model.head.bias[task.vocabulary.index[token]] = 1.0
        return model
"""


def test_weights_that_nobody_trained_are_measured_beside_others(command, monkeypatch):
    (command.folder / "by_hand.py").write_text(textwrap.dedent(CONSTRUCTED))
    (command.folder / "conf/model").mkdir(parents=True)
    (command.folder / "conf/model/always.yaml").write_text(
        "name: always\nconstruct: {_target_: by_hand.always, token: '7'}\n"
    )
    monkeypatch.syspath_prepend(str(command.folder))
    words = [word for word in LIS if not word.startswith("model")]
    outcome = command("train.py", "--config-dir=conf", *words, "model=always")
    assert outcome.status == 0, outcome.err
    outcome = command(
        "train.py", "--config-dir=conf", *words, "model=always", "measure.task.size=6"
    )
    assert outcome.status == 0, outcome.err
    rows = table(command.folder)
    assert rows["size"].tolist() == [4, 6]
    assert rows["recipe"].tolist() == ["constructed"] * 2
    assert rows["dim"].tolist() == [4, 4] and rows["steps"].isna().all()
    assert not list(command.folder.glob("runs/*/checkpoint.pt"))
    first = rows["cell"][0]
    again = command("train.py", "--config-dir=conf", *words, "model=always", "seed=5")
    assert "already done" in again.out and first in again.out  # no seed decides it
    assert "trust=true" in command("evaluate.py", f"run=runs/{first}").line
    outcome = command("evaluate.py", f"run=runs/{first}", "trust=true")
    last = json.loads(outcome.out.splitlines()[-1])
    assert last["answer_accuracy"] == rows["answer_accuracy"][0]


def test_a_cell_runs_again_from_its_configuration_alone(command, tmp_path_factory, monkeypatch):
    assert (
        command("train.py", *TINY, "model.mixer._target_=models.linear.LinearAttention").status == 0
    )
    [row] = table(command.folder).to_dict("records")
    config = command.folder / f"results/manual/configs/{row['cell']}.yaml"
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    outcome = command("train.py", f"config={config}", "logger=none")
    assert outcome.status == 0, outcome.err
    [again] = table(elsewhere).to_dict("records")
    same = ["cell", "weights", "steps", "answer_accuracy", "chain_exact_match", "data_fingerprint"]
    assert {key: again[key] for key in same} == {key: row[key] for key in same}
    refused = command("train.py", f"config={config}", "model.dim=16")
    assert refused.status == 2 and "model.dim" in refused.line


def test_an_edited_configuration_is_named(command):
    assert command("train.py", *TINY).status == 0
    [path] = command.folder.glob("runs/*/config.yaml")
    content = yaml.safe_load(path.read_text())
    content["seed"] = 7
    path.write_text(yaml.safe_dump(content))
    for program, word in (("train.py", f"config={path}"), ("evaluate.py", f"run={path.parent}")):
        outcome = command(program, word)
        assert outcome.status == 2
        assert "config.yaml: says cell" in outcome.line


def test_force_measures_again_and_keeps_the_old(command):
    assert command("train.py", *TINY).status == 0
    [record] = command.folder.glob("runs/*/record.json")
    before = json.loads(record.read_text())
    outcome = command("train.py", *TINY, "force=true")
    assert outcome.status == 0 and "already done" not in outcome.out
    after = json.loads(record.read_text())
    assert after["finished_at"] > before["finished_at"]
    assert after["answer_accuracy"] == before["answer_accuracy"]
    [aside] = command.folder.glob("runs/.before/*/record.json")
    assert json.loads(aside.read_text()) == before
    assert (aside.parent / "checkpoint.pt").exists()


def test_an_edited_mixer_from_outside_makes_another_cell(command, monkeypatch):
    source = command.folder / "edited_mixer.py"
    source.write_text(
        "from models.linear import LinearAttention\nclass Own(LinearAttention):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(command.folder))
    words = [*TINY, "model.mixer._target_=edited_mixer.Own"]
    assert command("train.py", *words).status == 0
    assert "already done" in command("train.py", *words).out
    source.write_text(source.read_text() + "# edited\n")
    from config.identity import source_digest

    source_digest.cache_clear()  # another process reads the file anew
    assert "already done" not in command("train.py", *words).out
    rows = table(command.folder)
    assert rows["cell"].nunique() == 2
    assert rows["sources.edited_mixer.Own"].nunique() == 2


GRID = {"model": ["sparse"], "model.num_heads": [1, 2], "model.mixer.block_size": [2, 4]}


def test_every_setting_that_varies_has_a_column_and_no_two_rows_agree(command):
    overrides = [w for w in TINY if not w.startswith(("model.num_heads", "model=", "logger"))]
    experiment = experiment_from(
        "trial", {"description": "x", "base": overrides, "grid": [GRID, {"task.order": ["growth"]}]}
    )
    plan = planned(experiment)
    identity = [column for column in plan if column != "cell"]
    assert not plan.duplicated(identity).any()
    assert set(plan.columns) >= {"heads", "model.mixer.block_size"}
    for one in cells(experiment):
        outcome = command("train.py", *one.overrides, "logger=none", "experiment_name=trial")
        assert outcome.status == 0, outcome.err
    rows = table(command.folder, "trial")
    assert len(rows) == 5 and not rows.duplicated(identity).any()
    assert sorted(rows["model.mixer.block_size"].dropna()) == [2, 2, 4, 4]
    assert "model.mixer.implementation" not in rows


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["model=linear", "model=sparse"], []),
        (["recipe=fast", "recipe=paper"], []),
        (["recipe.steps=5", "recipe.steps=6"], ["recipe.steps"]),
        (["task.size=5", "task.size=6"], []),
        (["task=lis", "task=ed"], []),
        (["task.order=growth", "task.order=leftmost"], ["task.order"]),
        (["data.train=5", "data.train=6"], ["data.train"]),
        (["seed=1", "seed=2"], []),
        (["model.position=rope", "model.position=none"], ["model.position"]),
    ],
)
def test_what_varies(words, keys):
    configs = [cell(word) for word in words]
    rows = [(described(c), settings_of({**compose_plain("train", [w]), "sources": {}}))
            for c, w in zip(configs, words, strict=True)]  # fmt: skip
    assert varying(rows) == keys


def test_the_size_trained_on_is_a_column_where_it_is_not_the_one_measured():
    grid = {"task.size": [4, 5], "task.capacity": [8], "measure.task.size": [4, 8]}
    plan = planned(experiment_from("x", {"description": "x", "base": ["task=lis"], "grid": [grid]}))
    assert plan[["task.size", "size"]].to_numpy().tolist() == [[4, 4], [4, 8], [5, 4], [5, 8]]


@pytest.mark.parametrize("place", [0.3, 0.6, 0.9])
def test_a_flipped_bit_in_the_weights_changes_no_number_silently(command, place):
    """The archive's own checks do not notice it."""
    assert command("train.py", *TINY).status == 0
    [row] = table(command.folder).to_dict("records")
    checkpoint = command.folder / "runs" / row["cell"] / "checkpoint.pt"
    content = bytearray(checkpoint.read_bytes())
    content[int(place * len(content))] ^= 0x10
    checkpoint.write_bytes(content)
    told = command("evaluate.py", f"run=runs/{row['cell']}")
    assert told.status == 2 and "checkpoint.pt: damaged checkpoint" in told.line
    again = command("train.py", *TINY, "measure.split=validation")
    assert again.status == 0 and "damaged checkpoint" in again.err and "again" in again.err
    assert command("evaluate.py", f"run=runs/{row['cell']}").status == 0
    assert table(command.folder)["answer_accuracy"].notna().all()
