"""The scaling benchmark's own arithmetic; its timings are read, not tested."""

import json

import pytest

from benchmarks import scaling


def test_slope_finds_the_power():
    assert scaling.slope([(x, 3 * x**1.5) for x in (512, 1024, 4096)]) == pytest.approx(1.5)
    assert scaling.slope([(512, 1.0)]) is None


def test_what_would_take_too_long_is_skipped_and_said():
    earlier = [{"mixer": "standard", "length": 512, "total_seconds": 100.0}]
    row = scaling.measure_apart("standard", 1024, earlier)
    assert row["skipped"] == "expected to take more than 240 s"
    after = scaling.measure_apart("standard", 2048, [row])
    assert after["skipped"] == "a shorter length was skipped"
    rows = [
        {"mixer": m, "length": 512, "seconds": 0.5, "peak_bytes": 2**20} for m in scaling.MIXERS
    ]
    rows += [row | {"mixer": mixer} for mixer in scaling.MIXERS]
    fits = {mixer: scaling.exponents(rows[i::3]) for i, mixer in enumerate(scaling.MIXERS)}
    printed = scaling.table(rows, fits)
    assert "standard at 1,024 skipped: expected to take more than 240 s" in printed
    assert "500.0" in printed


def test_a_process_that_fails_leaves_its_reason():
    row = scaling.measure_apart("no such mixer", 512, [])
    assert row["skipped"].startswith("exit status 1: KeyError")


def test_one_measurement_in_a_process_of_its_own():
    row = scaling.measure_apart("linear", 512, [])
    assert row["seconds"] > 0
    # At least the outputs and the three gradients: 4 tensors of 512 tokens, 64 wide, float32.
    assert row["peak_bytes"] > 4 * 512 * 64 * 4


def test_committed_record_has_every_length():
    record = json.loads((scaling.RECORDS / "scaling.json").read_text())
    assert {(row["mixer"], row["length"]) for row in record["rows"]} == {
        (mixer, length) for mixer in scaling.MIXERS for length in scaling.LENGTHS
    }
