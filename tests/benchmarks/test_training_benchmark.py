"""`python -m benchmarks training`: the plain side computes the same thing; its timings are read."""

import json

import torch

from benchmarks import training as benchmark
from benchmarks.shared import plain
from benchmarks.shared.cells import training_loss, training_mixture
from models.standard import StandardAttention
from models.transformer import Transformer
from tasks.arithmetic import Arithmetic


def test_the_plain_block_is_our_block_but_for_gelu_s_approximation():
    torch.manual_seed(0)
    ours = Transformer(20, 12, 16, 3, 4, StandardAttention).blocks[0].eval()
    written_out = plain.PlainBlock(16, 4, 12, 0.0)
    written_out.qkv.load_state_dict(ours.mixer.qkv.state_dict())
    written_out.out.load_state_dict(ours.mixer.out.state_dict())
    written_out.ffn.load_state_dict(ours.ffn.state_dict())
    x = torch.randn(2, 12, 16)
    torch.testing.assert_close(written_out(x), ours(x), atol=2e-3, rtol=0)


def test_the_plain_targets_are_chain_answer_and_eos():
    sequences = training_mixture(Arithmetic(3), 64)
    inputs, targets = plain.padded(sequences)
    assert inputs.shape == targets.shape == (len(sequences), sequences.tokens.shape[1] - 1)
    for row in range(len(sequences)):
        first, end = int(sequences.prompt_lengths[row]), int(sequences.lengths[row])
        tokens = torch.from_numpy(sequences.tokens[row].astype("int64"))
        assert torch.equal(inputs[row], tokens[:-1])
        assert torch.equal(targets[row, first - 1 : end - 1], tokens[first:end])
        assert (targets[row, : first - 1] == plain.IGNORED).all()
        assert (targets[row, end - 1 :] == plain.IGNORED).all()


def test_the_plain_loss_is_the_trainers():
    task = Arithmetic(2)
    sequences = training_mixture(task, 32)
    model = benchmark.build_model("standard", len(task.vocabulary), task.max_len, 16)
    ours = training_loss(model, sequences, "float32")
    torch.testing.assert_close(plain.plain_loss(model, *plain.padded(sequences)), ours)


def test_the_mixture_holds_every_size():
    task = Arithmetic(3)
    sequences = training_mixture(task, 300)
    assert abs(len(sequences) - 300) <= 3 and len(set(sequences.prompt_lengths)) > 1


def test_a_small_benchmark_from_steps_to_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "SETTINGS", [(2, 16, 0.1)])
    monkeypatch.setattr(benchmark, "MIXER_SETTING", (2, (16,)))
    path = tmp_path / "training.json"
    benchmark.main(["repeats=2", f"record={path}"])
    record = json.loads(path.read_text())
    row = record["against_plain"][0]
    assert row["ratio"] == row["plain_ms"] / row["ours_ms"] and row["ours_ms"] > 0
    assert all(record["mixers"][0][name] > 0 for name in benchmark.MIXERS)
    assert f"{row['ratio']:.4g}" in capsys.readouterr().out
