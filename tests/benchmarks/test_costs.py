"""`python -m benchmarks costs`: which models it times and what it writes."""

import pandas as pd
import pytest
import torch

from benchmarks import costs
from benchmarks.training import config_of
from common import UserError
from experiments.config import deciding_settings
from experiments.names import cell_name, run_name
from experiments.run import initial_model
from experiments.table import identity, read_table, upsert
from plots.costs import SPEEDS
from plots.costs import costs as costs_at_d90
from plots.data import read_speeds
from tasks.task import build_task
from training.data import SequenceTensors

COLUMNS = (
    "task,size,format,model,layers,heads,recipe,precision,max_len,dim,cell,batch,"
    "answer_seconds,tokens_per_second,training_step_seconds,repeats,commit,device,torch_version,measured_at"
).split(",")
SMALL = """task=arithmetic task.size=2 data.train=200 data.validation=20 data.test=20 recipe=quick
    recipe.steps=3 recipe.validate_every=3 recipe.stop_at=null progress=false"""


def small(model, dim, words=""):
    return config_of(f"{SMALL} model={model} model.dim={dim} {words}")


def entered(folder, config, accuracy):
    """Add a made-up measurement of the cell to the table in `folder`."""
    settings = deciding_settings(config)
    row = {
        **identity(settings), "status": "done", "answer_accuracy": accuracy, "finished_at": "",
        "cell": cell_name(config), "run": run_name(config), "max_len": 13, "precision": "float32",
    }  # fmt: skip
    upsert(folder, [{"row": row, "config": settings, "curve": None, "errors": None}])
    return config


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """An experiment with three models, of which sparse does not reach 90 %."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "results" / "mine"
    for model, dim, accuracy in (
        ("standard", 16, 0.95), ("linear", 16, 0.4), ("linear", 32, 0.97), ("sparse", 16, 0.89),
    ):  # fmt: skip
        entered(folder, small(model, dim), accuracy)
    return folder


def test_the_models_at_d90_are_timed(made_up, monkeypatch, capsys):
    entered(made_up, small("standard", 16, "seed=1"), 0.95)
    for name, value in {"BATCH": 4, "ANSWERS": 2, "REPEATS": 2}.items():
        monkeypatch.setattr(costs, name, value)
    costs.main("mine")
    table = pd.read_csv(made_up / "costs.csv")
    assert list(table) == COLUMNS and set(SPEEDS) < set(COLUMNS)
    table = table.set_index("model")
    assert table["dim"].to_dict() == {"standard": 16, "linear": 32}
    assert (table[SPEEDS] > 0).all().all() and (table["batch"] == 4).all()
    assert set(table["max_len"]) == {13} and set(table["repeats"]) == {2}
    assert "linear" in capsys.readouterr().out
    found = costs_at_d90(read_table(made_up), read_speeds(made_up)).set_index("model")
    assert found["answer_time"].to_dict() == table["answer_seconds"].to_dict()


@pytest.mark.parametrize("model", ["standard", "linear", "sparse"])
def test_timed_generation_equals_greedy_decoding(model):
    config = config_of(f"task=arithmetic task.size=3 model={model} model.dim=16")
    task = build_task(config.task)
    net = initial_model(config, task).double().eval()
    net.head.weight.data.mul_(20)  # so that an untrained model's choices vary
    sequences = task.draw(0, 0, 0, 5)
    prompts = SequenceTensors(sequences)
    written = costs.generate(net, prompts)
    counts = (sequences.lengths - sequences.prompt_lengths).tolist()
    assert written.shape == (5, max(counts))
    assert prompts.host_num_targets.sum() == sum(counts)
    for row, count in enumerate(counts):
        start = int(sequences.prompt_lengths[row])
        tokens = sequences.tokens[row, :start].tolist()
        for _ in range(count):
            tokens.append(int(net(torch.tensor([tokens]))[0, -1].argmax()))
        assert written[row, :count].tolist() == tokens[start:]


def test_an_experiment_without_a_d90_is_refused(tmp_path):
    entered(tmp_path / "low", small("standard", 16), 0.5)
    for name in ("low", "nowhere"):
        with pytest.raises(UserError, match=rf"{name}: no model that generates reaches 90 %"):
            costs.main(name, results_dir=tmp_path)
