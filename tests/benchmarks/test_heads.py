"""Fits and outputs of `benchmarks.heads`; its timings are not tested."""

import json
import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks import heads


def test_exponents_are_recovered():
    cases = product((1, 2, 4), (1, 2, 4, 8), (128, 256, 512), ("batched", "separate"))
    table = pd.DataFrame(cases, columns=["layers", "heads", "tokens", "calls"])
    table["seconds"] = 3e-6 * table["layers"] * table["heads"] ** 1.1 * table["tokens"] ** 2
    exact = heads.exponents(table)
    assert [exact[name] for name in heads.AXES] == pytest.approx([1, 1.1, 2])
    assert all(exact[f"{name}_±"] < 1e-9 for name in heads.AXES)


def test_intervals_of_exponents_use_students_t():
    """Compared with Student's t for 4 degrees of freedom: 6 rows, a constant, one slope."""
    noise, tokens = [0.1, -0.1, 0.05, 0.0, -0.05, 0.02], [16, 32, 64, 128, 256, 512]
    x, y = np.log(tokens), 2 * np.log(tokens) + noise
    cases = {"layers": 1, "heads": 1, "tokens": tokens, "seconds": np.exp(y)}
    found = heads.exponents(pd.DataFrame(cases))
    slope, offset = np.polyfit(x, y, 1)
    error = math.sqrt(((y - slope * x - offset) ** 2).sum() / 4 / ((x - x.mean()) ** 2).sum())
    assert (found["tokens"], found["tokens_±"]) == pytest.approx((slope, 2.776 * error), rel=1e-3)
    assert "heads" not in found  # the number of heads does not vary


def test_batched_and_separate_heads_give_the_same_output():
    row = {"layers": 2, "heads": 3, "tokens": 8, "width": 4}
    batched = heads.attention(row | {"calls": "batched"})()  # (1, 3, 8, 4)
    last = heads.attention(row | {"calls": "separate"})()  # the last head, (1, 1, 8, 4)
    torch.testing.assert_close(batched[:, -1:], last)
    q, k, v = torch.randn(3, 1, 3, 8, 4, generator=torch.Generator().manual_seed(0)).split(1)
    weights = (q @ k.mT / 2).softmax(-1)[0]
    torch.testing.assert_close(batched, weights @ (weights @ v[0]))


def test_record_of_a_small_run(tmp_path):
    path = tmp_path / "heads.json"
    heads.main((1, 2), (1, 2), (16, 32), (16, 32), record=path)
    record = json.loads(path.read_text())
    assert len(record["rows"]) == 32 and all(row["seconds"] > 0 for row in record["rows"])
    assert [(fit["K"], fit["calls"]) for fit in record["exponents"]] == [
        ("16", "batched"), ("16", "separate"), ("T", "batched"), ("T", "separate"),
    ]  # fmt: skip
