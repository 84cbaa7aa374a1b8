"""`python -m benchmarks answers`: what it times, what it keeps, what it prints."""

import json

import pandas as pd
import pytest
import torch
import yaml
from config.build import build_task, initial_model
from config.columns import described, resolved
from sweeps.cell import cost_figures, run_cell

from benchmarks import answers
from benchmarks.shared.cells import cell_config
from common import UserError
from plots.answers import read_answers, timed_together


def written(folder, model, dim, accuracy, words=""):
    """Return a row of a made-up table, and put its configuration beside the table."""
    config = cell_config(
        f"task=arithmetic task.size=2 model={model} model.dim={dim} recipe=quick "
        f"data.train=200 data.validation=20 data.test=20 {words}"
    )
    plain = resolved(config)
    (folder / "configs").mkdir(parents=True, exist_ok=True)
    (folder / "configs" / f"{plain['cell']}.yaml").write_text(yaml.safe_dump(plain))
    task = build_task(config.task)
    return {
        **described(config), **cost_figures(initial_model(config, task, answers.CPU), task),
        "max_len": task.max_len, "status": "done", "answer_accuracy": accuracy,
        "cell": plain["cell"], "weights": plain["weights"],
    }  # fmt: skip


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """An experiment of three models, of which sparse does not reach 90 %."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(answers, "in_new_process", lambda function, *given: function(*given))
    folder = tmp_path / "results" / "mine"
    rows = [
        written(folder, "standard", 16, 0.95), written(folder, "linear", 16, 0.4),
        written(folder, "linear", 32, 0.97), written(folder, "sparse", 16, 0.89),
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(folder / "results.csv", index=False)
    return folder


WORDS = ["experiment=mine", "batch=4", "answers=2", "repeats=2"]


def test_the_models_at_the_frontier_are_timed_and_kept(made_up, capsys, monkeypatch):
    answers.main(WORDS)
    (row,) = read_answers(made_up)
    assert [(m["model"], m["dim"]) for m in row["models"]] == [("Standard", 16), ("Linear", 32)]
    assert (row["task"], row["size"], row["max_len"]) == ("Arithmetic", 2, 13)
    assert row["commit"] and row["device"] and row["threads"] == 1
    for model in row["models"]:
        assert model["weights"] == "untrained" and 0 <= model["right_chains"] <= 4
        for name in answers.LISTS:
            assert len(model[name]) == 2 and min(model[name]) > 0
    found, of = timed_together([row], {"Linear": [row["models"][1]["cell"]], "Sparse": ["none"]})
    assert of is row and found["Linear"].answer_seconds == tuple(row["models"][1]["answer_seconds"])
    assert list(found) == ["Linear"]
    assert "Arithmetic, n = 2, Linear" in capsys.readouterr().out
    monkeypatch.setattr(answers, "measure", None)  # any timing would fail
    answers.main(WORDS)
    assert read_answers(made_up) == [row]


@pytest.mark.parametrize("change", ["batch=3", "force=true", "another least D", "another device"])
def test_what_changed_is_timed_again(made_up, monkeypatch, change):
    answers.main(WORDS)
    (row,) = read_answers(made_up)
    words = [*WORDS, change] if "=" in change else WORDS
    if change == "another least D":
        table = pd.read_csv(made_up / "results.csv")
        table.loc[1, "answer_accuracy"] = 0.99
        table.to_csv(made_up / "results.csv", index=False)
    if change == "another device":
        content = {"rows": [{**row, "device": "cpu: of yesterday"}]}
        (made_up / "answers.json").write_text(json.dumps(content))
    new = {"size": 2, "task": "new", "batch": 4, "models": []}
    monkeypatch.setattr(answers, "measure", lambda job, options: new)
    answers.main(words)
    assert read_answers(made_up) == [new]


@pytest.mark.parametrize("change", ["force=true", "batch=3", "another device"])
def test_a_call_cut_off_leaves_the_old_record_whole_and_goes_on(made_up, monkeypatch, change):
    """Rows of new settings or of another processor do not stand beside old ones as if alike."""
    table = pd.read_csv(made_up / "results.csv")
    more = [written(made_up, "linear", 32, 0.97, f"task.size={size}") for size in (3, 4)]
    pd.DataFrame([*table.to_dict("records"), *more]).to_csv(made_up / "results.csv", index=False)
    device = {"device": "cpu: of yesterday"} if change == "another device" else {}
    times, lists = [], {name: [1.0] for name in answers.LISTS}

    def timed(job, options):
        times.append(job.size)
        if len(times) == 5:
            raise KeyboardInterrupt
        settings = {name: getattr(options, name) for name in answers.SETTINGS}
        models = [{"cell": entrant.cells[0], "model": entrant.model, "dim": entrant.dim,
                   "weights": "untrained", "right_chains": 0, **lists}
                  for entrant in job.entrants]  # fmt: skip
        here = answers.machine(answers.CPU)
        return {"task": job.task, "size": job.size, "turn": len(times), **settings, **here,
                "models": models}  # fmt: skip

    monkeypatch.setattr(answers, "measure", timed)
    answers.main(WORDS)
    old = [{**row, **device} for row in read_answers(made_up)]
    assert [row["turn"] for row in old] == [1, 2, 3]
    (made_up / "answers.json").write_text(json.dumps({"rows": old}))
    words = [*WORDS, change] if "=" in change else WORDS
    with pytest.raises(KeyboardInterrupt):
        answers.main(words)
    assert read_answers(made_up) == old
    answers.main([word for word in words if word != "force=true"])
    turns = [row["turn"] for row in read_answers(made_up)]
    assert turns == [4, 6, 7]
    assert not (made_up / ".unfinished").exists()


def test_a_checkpoint_is_preferred_and_its_chains_are_judged(made_up):
    table = pd.read_csv(made_up / "results.csv")
    words = "seed=1 recipe.steps=3 recipe.validate_every=3 recipe.stop_at=null"
    row = written(made_up, "standard", 16, 0.95, words)
    config = cell_config(
        "task=arithmetic task.size=2 model=standard model.dim=16 recipe=quick data.train=200 "
        f"data.validation=20 data.test=20 {words}"
    )
    assert run_cell(config)["cell"] == row["cell"]
    pd.DataFrame([*table.to_dict("records"), row]).to_csv(made_up / "results.csv", index=False)
    answers.main(WORDS)
    timed = {model["model"]: model for model in read_answers(made_up)[0]["models"]}
    assert (timed["Standard"]["weights"], timed["Standard"]["cell"]) == ("trained", row["cell"])
    assert timed["Linear"]["weights"] == "untrained"


@pytest.mark.parametrize("model", ["standard", "linear", "sparse"])
def test_what_is_timed_is_greedy_generation(model):
    config = cell_config(f"task=arithmetic task.size=3 model={model} model.dim=16")
    task = build_task(config.task)
    net = initial_model(config, task, answers.CPU).double().eval()
    net.head.weight.data.mul_(20)  # an untrained model's choices vary
    chains = answers.Chains(task.draw(0, 0, 0, 5))
    written = chains.write(net)
    assert written.shape == (5, int(chains.counts.max()))
    right = 0
    for row in range(5):
        start, count = int(chains.prompt_lengths[row]), int(chains.counts[row])
        tokens = chains.tokens[row, :start].tolist()
        for _ in range(count):
            tokens.append(int(net(torch.tensor([tokens]))[0, -1].argmax()))
        assert written[row, :count].tolist() == tokens[start:]
        right += tokens == chains.tokens[row, : start + count].tolist()
    assert chains.count_right(net) == right
    assert chains.total == int(chains.counts.sum())


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "experiment=NAME is missing"), (["experiment=mine", "batch=0"], "must be at least 1"),
     (["experiment=nowhere"], "nowhere: unknown")],
)  # fmt: skip
def test_a_bad_call_is_told_in_one_line(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        answers.main(words)
