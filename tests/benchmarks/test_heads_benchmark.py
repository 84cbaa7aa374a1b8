"""The arithmetic of `heads`; its timings are read, not tested."""

import json
import math

import numpy as np
import pytest
import torch

from benchmarks import heads
from benchmarks.shared.report import RECORDS


def rows(power=lambda row: 1.0):
    options = heads.Options()
    cases = [
        {"regime": regime, "calls": calls, "layers": layers, "heads": count, "tokens": tokens}
        for regime, sizes in (("16", options.tokens), ("N", options.wide_tokens))
        for tokens in sizes
        for layers in options.layers
        for count in options.heads
        for calls in heads.CALLS
    ]
    return [row | {"seconds": power(row), "head_dim": 16} for row in cases]


def test_exponents_are_found_with_their_interval():
    def seconds(row):
        return 3e-6 * row["layers"] * row["heads"] ** 1.1 * row["tokens"] ** 2

    exact = heads.exponents(heads.chosen(rows(seconds), "16", "batched"))
    assert [exact[name][0] for name in exact] == pytest.approx([1, 1.1, 2])
    assert all(width < 1e-9 for _, width in exact.values())
    noise = torch.Generator().manual_seed(0)
    covered = 0
    for _ in range(100):
        noisy = rows(lambda row: seconds(row) * float(torch.randn((), generator=noise).exp()))
        power, width = heads.exponents(heads.chosen(noisy, "N", "separate"))["heads"]
        covered += abs(power - 1.1) < width
    assert 0.88 < covered / 100 <= 1


def test_what_does_not_vary_has_no_exponent():
    one = [row for row in rows(lambda row: row["heads"]) if row["tokens"] == 256]
    found = heads.exponents(heads.chosen(one, "16", "batched"))
    assert found["tokens"] is None and found["heads"][0] == pytest.approx(1)


def test_intervals_of_exponents_are_students():
    """Held against the textbook's t of 4 degrees of freedom: 6 rows, a constant, one slope."""
    noise = [0.1, -0.1, 0.05, 0.0, -0.05, 0.02]
    tokens = [16, 32, 64, 128, 256, 512]
    row = {"layers": 1, "heads": 1}
    found = heads.exponents([
        {**row, "tokens": n, "seconds": n**2 * math.exp(e)}
        for n, e in zip(tokens, noise, strict=True)
    ])  # fmt: skip
    x, y = np.log(tokens), 2 * np.log(tokens) + noise
    slope, offset = np.polyfit(x, y, 1)
    error = math.sqrt(((y - slope * x - offset) ** 2).sum() / 4 / ((x - x.mean()) ** 2).sum())
    assert found["tokens"] == pytest.approx((slope, 2.776 * error), rel=1e-3)


def test_batched_and_separate_heads_compute_the_same():
    row = {"layers": 2, "heads": 3, "tokens": 8, "head_dim": 4}
    batched = heads.attention(row | {"calls": "batched"})()  # (1, 3, 8, 4)
    last = heads.attention(row | {"calls": "separate"})()  # that of the last head, (1, 1, 8, 4)
    torch.testing.assert_close(batched[:, -1:], last)
    q, k, v = torch.randn(3, 1, 3, 8, 4, generator=torch.Generator().manual_seed(0)).split(1)
    weights = (q @ k.mT / 2).softmax(-1)[0]
    torch.testing.assert_close(batched, weights @ (weights @ v[0]))


def test_ratios_leave_out_a_single_head():
    found = heads.batched_over_separate(
        rows(lambda r: (0.8 if r["calls"] == "batched" else 1.0) if r["heads"] > 1 else r["tokens"])
    )
    assert {row["ratio"] for row in found} == {0.8} and len(found) == 7


def test_flops_over_the_bound_at_todays_omega():
    found = [heads.flops_over_bound({"tokens": n, "head_dim": n}) for n in (128, 256, 512)]
    assert found == pytest.approx([85, 131, 202], abs=0.6)


def test_bound_ratios_of_configured_mixers():
    found = heads.bound_ratios([35, 221])
    assert found["standard"] == pytest.approx([2 * 16 * (1 + 1 / t) for t in (35, 221)])
    assert found["linear"] == pytest.approx([4 * 16 * 17 / t for t in (35, 221)])
    assert found["tensor"][1] > 5 * found["tensor"][0]


def test_record_and_figure_of_a_small_run(tmp_path, capsys):
    sizes = ["layers=1,2", "heads=1,2", "tokens=16,32", "wide_tokens=16,32"]
    heads.main([*sizes, f"record={tmp_path / 'heads.json'}"])
    record = json.loads((tmp_path / "heads.json").read_text())
    assert len(record["rows"]) == 32 and all(row["seconds"] > 0 for row in record["rows"])
    assert set(record["exponents"]) == {"16 batched", "16 separate", "N batched", "N separate"}
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
    assert "tensor_linear" in capsys.readouterr().out


def test_committed_record_is_complete():
    record = json.loads((RECORDS / "heads.json").read_text())
    keys = ("regime", "calls", "layers", "heads", "tokens")
    assert {tuple(row[k] for k in keys) for row in record["rows"]} == {
        tuple(row[k] for k in keys) for row in rows()
    }
