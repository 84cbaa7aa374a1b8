"""`python -m benchmarks training`: the plain side computes the same thing; its timings are read."""

import json

import torch

from benchmarks import training as benchmark
from models.standard import StandardAttention
from models.transformer import Transformer
from tasks.arithmetic import Arithmetic


def test_the_plain_block_is_our_block_but_for_gelu_s_approximation():
    torch.manual_seed(0)
    ours = Transformer(20, 12, 16, 3, 4, StandardAttention).blocks[0].eval()
    plain = benchmark.PlainBlock(16, 4, 12, 0.0)
    plain.qkv.load_state_dict(ours.mixer.qkv.state_dict())
    plain.out.load_state_dict(ours.mixer.out.state_dict())
    plain.ffn.load_state_dict(ours.ffn.state_dict())
    x = torch.randn(2, 12, 16)
    torch.testing.assert_close(plain(x), ours(x), atol=2e-3, rtol=0)


def test_padded_batches_hold_the_same_targets_at_full_length():
    task = Arithmetic(3)
    sequences, order = benchmark.some_data(task)
    index = sequences.sorted_by_length(order.indices(0))[:9]  # the shorter ones
    trimmed, whole = sequences.batch(index), benchmark.padded(sequences, index)
    assert whole.tokens.shape[1] == sequences.tokens.shape[1] > trimmed.tokens.shape[1]
    width = trimmed.tokens.shape[1]
    assert torch.equal(whole.tokens[:, :width], trimmed.tokens)
    assert torch.equal(whole.loss_mask[:, : width - 1], trimmed.loss_mask)
    assert not whole.loss_mask[:, width - 1 :].any()


def test_a_small_benchmark_from_steps_to_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "SETTINGS", [(2, 16, 0.1)])
    monkeypatch.setattr(benchmark, "MIXER_SETTING", (2, (16,)))
    path = tmp_path / "training.json"
    benchmark.main(["--repeats", "2", "--record", str(path)])
    record = json.loads(path.read_text())
    row = record["against_plain"][0]
    assert row["ratio"] == row["plain_ms"] / row["ours_ms"] and row["full_ms"] > 0
    assert all(record["mixers"][0][name] > 0 for name in benchmark.MIXERS)
    assert f"{row['ratio']:.2f}" in capsys.readouterr().out
