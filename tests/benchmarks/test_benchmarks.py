"""Every benchmark at a small size: rows, columns and ratios, but no timings."""

import json

import pytest
import torch
from small_models import MIXERS, loss_of, plain_greedy, small_model

from benchmarks import data, evaluation, scaling, timing, training
from benchmarks.__main__ import NAMES
from common import UserError, read_options
from evaluation.generate import generate
from experiments.run import initial_model
from models.flops import training_step_flops
from models.standard import StandardAttention
from models.transformer import Transformer
from tasks.arithmetic import Arithmetic
from tasks.lis import LIS
from tasks.sampling import draw_set
from tasks.task import build_task
from training.data import SequenceTensors


def run(benchmark, folder, **options):
    path = folder / "record.json"
    benchmark.main(**options, record=path)
    record = json.loads(path.read_text())
    assert {"commit", "device", "threads", "torch_version"} <= set(record["about"])
    return record


def test_options_are_parsed_by_type_and_errors_name_the_option():
    assert NAMES == ["costs", "data", "evaluation", "heads", "scaling", "training"]
    words = ["dims=32,64", "compile=true", "models=", "batch=4"]
    expected = {"dims": (32, 64), "compile": True, "models": (), "batch": 4}
    assert read_options(training.main, words) == expected
    assert read_options(scaling.main, ["lengths=[32, 64]"]) == {"lengths": (32, 64)}
    for word in ("dims=x", "dim=32", "dims", "batch=1.5"):
        with pytest.raises(UserError, match=f"^{word.partition('=')[0]}"):
            read_options(training.main, [word])


def test_actions_take_turns_and_the_warm_up_does_not_count(monkeypatch):
    calls, seconds = [], iter([9.0, 9.0, 3.0, 5.0, 1.0, 5.0, 2.0, 5.0])
    monkeypatch.setattr(timing, "seconds_of", lambda action, device: action() or next(seconds))
    actions = {name: lambda name=name: calls.append(name) for name in "ab"}
    assert timing.median_seconds(actions, repeats=3) == {"a": 2.0, "b": 5.0}
    assert calls == list("abababab")


def test_training_steps_are_compared_with_the_plain_module(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(training.MATMUL, "cpu", (64, 2))
    record = run(
        training, tmp_path, size=2, dims=(8,), models=("running_mean",), repeats=1, batch=4
    )
    rows = {row["model"]: row for row in record["rows"]}
    assert set(rows) == {"plain", "standard", "running_mean"}
    for row in rows.values():
        ratio = row["milliseconds"] / rows["standard"]["milliseconds"]
        assert row["over_standard"] == pytest.approx(ratio)
        ratio = rows["plain"]["milliseconds"] / row["milliseconds"]
        assert row["plain_over"] == pytest.approx(ratio)
    flops, step = rows["standard"]["tflops"], rows["standard"]["milliseconds"] / 1000
    config = training.config_of("task=arithmetic task.size=2 model=standard model.dim=8")
    task = build_task(config.task)
    lengths = draw_set(task, "train", 160).lengths - 1
    model = initial_model(config, task)
    every = [training_step_flops(model.flops(int(length))) for length in lengths]
    assert flops == pytest.approx(4 * sum(every) / 160 / step / 1e12)
    assert rows["standard"]["share"] == pytest.approx(flops / record["matmul_tflops"])
    assert rows["plain"]["tflops"] is rows["plain"]["share"] is None
    assert "running_mean" in capsys.readouterr().out
    assert {"hybrid", "lstm"} < set(training.MODELS) and "tensor" not in training.MODELS


def test_plain_block_equals_our_block_up_to_the_gelu_approximation():
    torch.manual_seed(0)
    ours = Transformer(20, 12, 16, 3, 4, StandardAttention).blocks[0].eval()
    plain = training.PlainBlock(16, 4, 12, 0.0)
    plain.qkv.load_state_dict(ours.mixer.qkv.state_dict())
    plain.out.load_state_dict(ours.mixer.out.state_dict())
    plain.up.load_state_dict(ours.ffn[0].state_dict())
    plain.down.load_state_dict(ours.ffn[2].state_dict())
    x = torch.randn(2, 12, 16)
    no_line_ends = torch.zeros(2, 12, dtype=torch.bool)
    torch.testing.assert_close(plain(x), ours(x, no_line_ends), atol=2e-3, rtol=0)


def test_plain_loss_equals_the_trainers_loss():
    task = Arithmetic(3)
    sequences = task.draw(0, 0, 0, 64)
    inputs, targets = training.padded(sequences)
    assert inputs.shape == targets.shape == (len(sequences), task.max_len)
    model = small_model(task)
    batch = SequenceTensors(sequences).batch(torch.arange(len(sequences)))
    torch.testing.assert_close(training.plain_loss(model, inputs, targets), loss_of(model, batch))


@pytest.mark.parametrize("mixer", MIXERS)
def test_plain_generation_equals_greedy_decoding(mixer):
    """Plain generation runs in float32, so the head is scaled up to avoid near-ties."""
    task = Arithmetic(3)
    model = small_model(task, mixer).eval()
    model.head.weight.data.mul_(50)
    sequences = task.draw(0, 1, 0, 20)
    written = evaluation.plain_generation(model, sequences)
    texts = plain_greedy(model, sequences)
    assert [row[: len(text)] for row, text in zip(written.tolist(), texts, strict=True)] == texts
    assert evaluation.equal(generate(model, sequences), written) == 20
    written = written.clone()
    written[3, 0] = 0
    assert evaluation.equal(generate(model, sequences), written) == 19


@pytest.mark.parametrize("trained", [True, False])
def test_exact_evaluation_is_compared_with_plain_generation(tmp_path, trained):
    record = run(
        evaluation, tmp_path, size=2, dim=16, models=("linear",), plain=6, sequences=12, steps=3,
        train=200, trained=trained, runs_dir=tmp_path / "runs", data_dir=tmp_path / "data",
    )  # fmt: skip
    states = ["trained", "untrained"] if trained else ["untrained"]
    assert [row["state"] for row in record["rows"]] == states
    assert (tmp_path / "runs").exists() == trained
    for row in record["rows"]:
        assert row["equal_sequences"] == row["plain_sequences"] == 6
        times = row["plain_seconds_per_sequence"], row["exact_seconds_per_sequence"]
        assert row["ratio"] == pytest.approx(times[0] / times[1])
        assert row["ratio_same_sequences"] > 0


def test_sequences_per_second(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "COT_BENCHMARK", [(LIS(8), 100), (Arithmetic(4), 400)])
    record = run(data, tmp_path, count=50, repeats=1)
    one, two = record["rows"]
    assert one["drawn_ratio"] == pytest.approx(one["drawn"] / 100)
    mean = (one["distinct_ratio"] * two["distinct_ratio"]) ** 0.5
    assert record["geometric_means"]["distinct_ratio"] == pytest.approx(mean)


def test_record_of_scaling(tmp_path, monkeypatch):
    rooms = {}

    def measured(name, length, room):
        rooms.setdefault(name, []).append((length, room))
        return length**2.0

    monkeypatch.setattr(scaling, "measure", measured)
    monkeypatch.setattr(scaling, "LONGEST_PASS", 100**2)
    models = ("sliding_window", "standard")
    record = run(scaling, tmp_path, models=models, lengths=(32, 64, 128, 256))
    assert [row["seconds"] for row in record["powers"]] == pytest.approx([2, 2])
    assert rooms["sliding_window"] == [(32, 256), (64, 256), (128, 256)]
    assert rooms["standard"] == [(32, 32), (64, 64), (128, 128)]
