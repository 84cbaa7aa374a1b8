"""`python -m benchmarks recipes`: what it measures, what it keeps, what it prints."""

import json

import pytest

from benchmarks import recipes
from config.identity import cell_name
from errors import UserError


def row(name, seconds, task="lis", model="linear", seed=0):
    cell = cell_name(recipes.cell_config(seed, name, task, model))
    return {"try": name, "seconds": seconds, "task": task, "model": model, "seed": seed,
            "cell": cell, "limit_seconds": recipes.LIMIT_SECONDS}  # fmt: skip


def whole(name, seconds):
    return [
        row(name, seconds, task, model, seed)
        for task in recipes.SIZES
        for model in recipes.MODELS
        for seed in (0, 1, 2)
    ]


@pytest.fixture
def two_operators(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recipes, "SIZES", {"arithmetic": (2, 32)})
    compose = recipes.cell_config
    few = {"train": 600, "validation": 50, "test": 50}

    def with_few(*job):
        config = compose(*job)
        object.__setattr__(config, "data", type(config.data)(**few))
        return config

    monkeypatch.setattr(recipes, "cell_config", with_few)


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
    monkeypatch.setattr(recipes.time, "process_time", lambda: clock[0])

    def slow(*arguments):
        clock[0] += 1000.0
        return type("Found", (), {"answer_accuracy": 0.01 if clock[0] < 3000 else 0.06})

    monkeypatch.setattr(recipes, "evaluate", slow)
    solved = recipes.attempt((3, "fast", "arithmetic", "linear"))
    assert (solved["ended"], solved["seconds"], solved["steps"]) == ("solved", 0.0, 300)


def test_the_first_recipe_stays_what_it_was():
    first = recipes.cell_config(0, "first", "lis", "sparse").recipe
    assert (first.optimizer, first.learning_rate, first.schedule) == ("adamw", 3e-3, "cosine")
    assert (first.steps, first.warmup, first.warmup_steps) == (20000, 0.02, None)
    assert (first.average_decay, first.embedding_ratio) == (None, None)
    kinds = ("hidden", "embedding", "head", "vector")
    factors = [first.rate_factor(kind, dim=128) for kind in kinds]
    assert factors == [0.5] * 4 and (first.decay, first.decay_vectors) == ("coupled", True)
    assert (first.betas, first.weight_decay) == ([0.9, 0.98], 0.01)


def test_rows_that_are_there_are_not_measured_again(tmp_path, monkeypatch, capsys):
    record = tmp_path / "recipes.json"
    rows = whole("fast", 10.0)
    record.write_text(json.dumps({"rows": rows}))
    monkeypatch.setattr(recipes, "attempt", None)  # any run would fail
    recipes.main(["--tries", "fast", "--record", str(record), "--jobs", "1"])
    assert json.loads(record.read_text())["rows"] == rows
    assert "90 s" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("change", [{"cell": "of-yesterday"}, {"limit_seconds": 1.0}])
def test_rows_of_another_recipe_or_limit_do_not_count(change):
    rows = whole("fast", 10.0)
    assert recipes.of_today([{**rows[0], **change}, *rows[1:]]) == rows[1:]


def test_the_table_is_of_medians_and_unsolved_runs_are_a_lower_bound(capsys):
    rows = [*whole("first", 20.0), *whole("fast", 10.0)]
    rows[0]["seconds"] = rows[1]["seconds"] = None  # two of three seeds of one cell
    recipes.print_table(rows)
    lines = capsys.readouterr().out.splitlines()
    limit = recipes.LIMIT_SECONDS
    assert f"{limit:.0f} s (1/3)" in lines[1] and "10 s" in lines[1]
    assert f"> {8 * 20 + limit:.0f} s" in lines[-2] and "90 s" in lines[-2]
    assert lines[-1].split()[-2:] == ["1.00", f"{(8 * 20 + limit) / 90:.2f}"]


def test_an_unknown_try_is_refused():
    with pytest.raises(UserError, match="--tries nonsense: must be among first, second"):
        recipes.main(["--tries", "nonsense"])
