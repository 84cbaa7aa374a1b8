"""`python -m benchmarks recipes`: what it measures, what it keeps, what it prints."""

import json

import pytest
from config.identity import cell_name

from benchmarks import recipes
from benchmarks.shared import cells
from common import RunError, UserError


def row(name, seconds, task="lis", model="linear", seed=0):
    cell = cell_name(recipes.config_of((seed, name, task, model)))
    return {"try": name, "seconds": seconds, "task": task, "model": model, "seed": seed,
            "cell": cell, "limit_seconds": recipes.LIMIT_SECONDS}  # fmt: skip


def whole(name, seconds):
    return [
        row(name, seconds, task, model, seed)
        for task in recipes.BASKET
        for model in recipes.MODELS
        for seed in (0, 1, 2)
    ]


@pytest.fixture
def two_operators(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recipes, "DIM", 32)
    monkeypatch.setitem(cells.BASKET, "arithmetic", "task.size=2")
    few = "data.train=600 data.validation=50 data.test=50"
    monkeypatch.setattr(cells, "BASKET_DATA", few)


def test_a_run_ends_solved_or_out_of_time(two_operators, monkeypatch):
    monkeypatch.setattr(recipes, "TARGET", 0.05)
    monkeypatch.setattr(recipes, "LOOK_FROM", 0.01)
    solved = recipes.attempt((3, "fast", "arithmetic", "linear"))
    assert solved["ended"] == "solved" and solved["best_answer_accuracy"] >= 0.05
    assert 0.01 <= solved["best_chain_exact_match"] <= solved["best_answer_accuracy"]
    assert solved["seconds"] > 0 and solved["steps"] % 100 == 0 and solved["seed"] == 3
    monkeypatch.setattr(recipes, "LIMIT_SECONDS", 0.1)
    late = recipes.attempt((3, "first", "arithmetic", "linear"))
    assert late["ended"] == "out of time" and late["seconds"] is None


def test_looking_at_answers_is_no_training_time(two_operators, monkeypatch):
    monkeypatch.setattr(recipes, "TARGET", 0.05)
    monkeypatch.setattr(recipes, "LOOK_FROM", 0.0)
    clock = [0.0]
    monkeypatch.setattr(cells.time, "process_time", lambda: clock[0])

    def slow(*arguments):
        clock[0] += 1000.0
        return type("Found", (), {"answer_accuracy": 0.01 if clock[0] < 3000 else 0.06})

    monkeypatch.setattr(recipes, "evaluate", slow)
    solved = recipes.attempt((3, "fast", "arithmetic", "linear"))
    assert (solved["ended"], solved["seconds"], solved["steps"]) == ("solved", 0.0, 300)


def test_limits_of_steps_and_failures_end_a_run(two_operators, monkeypatch):
    config = recipes.config_of((0, "fast", "arithmetic", "linear"))
    limited = cells.Training(config, lambda *_: False, limit_steps=200)
    assert (limited.ended, limited.solved, limited.steps) == ("out of steps", False, 200)

    def diverged(trainer):
        raise RunError("training diverged: loss nan within 7 steps")

    monkeypatch.setattr(cells.Trainer, "fit", diverged)
    assert cells.Training(config, lambda *_: False).ended.startswith("training diverged")


def test_the_first_recipe_stays_what_it_was():
    first = recipes.config_of((0, "first", "lis", "sparse")).recipe
    assert (first.optimizer, first.learning_rate, first.schedule) == ("adamw", 3e-3, "cosine")
    assert (first.steps, first.warmup, first.warmup_steps) == (20000, 0.02, None)
    assert (first.average_decay, first.embedding_ratio) == (None, None)
    kinds = ("hidden", "embedding", "head", "vector")
    factors = [first.rate_factor(kind, dim=128) for kind in kinds]
    assert factors == [0.5] * 4 and (first.decay, first.decay_vectors) == ("coupled", True)
    assert (first.betas, first.weight_decay) == ([0.9, 0.98], 0.01)


def test_sparse_attention_sees_both_letters_of_a_pair():
    blocks = {
        (task, model): recipes.config_of((0, "fast", task, model)).model.mixer.get("window_blocks")
        for task in recipes.BASKET
        for model in recipes.MODELS
    }
    assert blocks["ed", "sparse"] == 2 and blocks["lis", "sparse"] == 1
    assert blocks["ed", "linear"] is None


def test_rows_that_are_there_are_not_measured_again(tmp_path, monkeypatch, capsys):
    record = tmp_path / "recipes.json"
    rows = whole("fast", 10.0)
    record.write_text(json.dumps({"rows": rows}))
    monkeypatch.setattr(recipes, "attempt", None)  # any run would fail
    recipes.main(["tries=fast", f"record={record}", "jobs=1"])
    assert json.loads(record.read_text())["rows"] == rows
    assert "90 s" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("change", [{"cell": "of-yesterday"}, {"limit_seconds": 1.0}])
def test_rows_of_another_recipe_or_limit_do_not_count(change):
    rows = whole("fast", 10.0)
    assert recipes.of_today([{**rows[0], **change}, *rows[1:]]) == rows[1:]


def test_the_table_is_of_medians_and_unsolved_runs_are_a_lower_bound(capsys):
    rows = [*whole("first", 20.0), *whole("fast", 10.0)]
    rows[0]["seconds"] = rows[1]["seconds"] = None  # two of three seeds of one cell
    recipes.print_rows(rows)
    lines = capsys.readouterr().out.splitlines()
    limit = recipes.LIMIT_SECONDS
    assert f"{limit:.0f} s (1/3)" in lines[3] and "10 s" in lines[3]
    assert f"> {8 * 20 + limit:.0f} s" in lines[-2] and "90 s" in lines[-2]
    assert lines[-1].split()[-2:] == ["1.00", f"{(8 * 20 + limit) / 90:.2f}"]


def test_an_unknown_try_is_refused():
    with pytest.raises(UserError, match="tries=nonsense: must be among first, second"):
        recipes.main(["tries=nonsense"])
