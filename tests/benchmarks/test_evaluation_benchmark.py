"""The evaluation benchmark's plain side and its record; its timings are read, not tested."""

import json

import pytest
import torch
from small_models import MIXERS, TASKS, plain_greedy, small_model

from benchmarks import evaluation as benchmark
from evaluation.generation import generate


@pytest.mark.parametrize("leave", [True, False])
@pytest.mark.parametrize("mixer", MIXERS)
def test_plain_generation_is_greedy_decoding(mixer, leave):
    """In float32, hence on a model without close calls: a large head makes margins wide."""
    task = TASKS["arithmetic"]()
    model = small_model(task, mixer).eval()
    model.head.weight.data.mul_(50)
    sequences = task.draw(0, 1, 0, 20)
    written = benchmark.plain_generation(model, sequences, leave)
    assert written == plain_greedy(model, sequences)
    assert benchmark.equal(generate(model, sequences), written) == 20
    written[3] = written[3][:-1]
    assert benchmark.equal(generate(model, sequences), written) == 19


def test_a_small_benchmark_from_training_to_record(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = (
        "--operators 3 --train 500 --dim 16 --models linear --plain-sequences 20 --sequences 40"
    )
    arguments += f" --many 30 --steps 3 --records {tmp_path} --memory"
    benchmark.main(arguments.split())
    threads = torch.get_num_threads()
    assert threads == 1
    record = json.loads((tmp_path / "evaluation.json").read_text())
    trained, untrained = record["rows"]
    assert (trained["state"], untrained["state"]) == ("trained", "untrained")
    assert trained["training"]["steps"] == 3
    for row in record["rows"]:
        assert row["equal_sequences"] == row["equal_sequences_leaving"] == 20
        assert row["ratio"] > 0
        assert row["certified_few_seconds_per_sequence"] > 0
    assert "equal 20 of 20" in capsys.readouterr().out


def test_rows_of_other_models_stay_in_the_record(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    common = "--operators 1 --dim 16 --plain-sequences 4 --sequences 6 --many 0 --untrained-only"
    for model in ("linear", "standard", "linear"):
        words = f"{common} --models {model} --records {tmp_path} --memory"
        benchmark.main(words.split())
    record = json.loads((tmp_path / "evaluation.json").read_text())
    assert [row["model"] for row in record["rows"]] == ["standard", "linear"]
    assert all(row["setting"]["dim"] == 16 for row in record["rows"])


@pytest.mark.parametrize("part", ["rows", "many"])
def test_untrained_only_leaves_the_trained_rows(tmp_path, part):
    path = tmp_path / "evaluation.json"
    old = [{"model": "standard", "state": state, "of": "old"} for state in ("trained", "untrained")]
    path.write_text(json.dumps({part: old}))
    options = benchmark.parse(["--untrained-only", "--models", "standard"])
    new = {"model": "standard", "state": "untrained", "of": "new"}
    rows = benchmark.updated(path, options, {part: [new]})[part]
    assert [(row["state"], row["of"]) for row in rows] == [("trained", "old"), ("untrained", "new")]


def test_memory_at_another_limit_or_count_stays(tmp_path):
    path = tmp_path / "evaluation.json"
    rows = [
        {"model": "standard", "memory_mb": memory, "sequences": count}
        for memory in (64, 256)
        for count in (2, 8)
    ]
    path.write_text(json.dumps({"memory": rows}))
    new = [{**rows[1], "of": "new"}]
    found = benchmark.updated(path, benchmark.parse([]), {"memory": new})["memory"]
    assert [(row["memory_mb"], row["sequences"], row.get("of")) for row in found] == [
        (64, 2, None), (64, 8, "new"), (256, 2, None), (256, 8, None),
    ]  # fmt: skip


def test_extrapolation_is_called_so():
    row = {
        "model": "linear",
        "state": "untrained",
        "sequences": 1000,
        "wall_seconds": 2.0,
        "processes": 2,
        "cpu_seconds": 4.0,
        "answer_accuracy": 1.0,
        "extrapolated_to_100000_seconds": 200.0,
    }
    assert "extrapolated" in benchmark.many_line(row)
    assert "extrapolated" not in benchmark.many_line(row | {"sequences": 100_000})
