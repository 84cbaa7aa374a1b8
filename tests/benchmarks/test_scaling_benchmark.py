"""The arithmetic of `scaling` and `forms`; their timings are read, not tested."""

import json

import pytest

from benchmarks import forms, scaling
from benchmarks.shared.report import RECORDS
from common import UserError


def test_slope_finds_the_power():
    assert scaling.slope([(x, 3 * x**1.5) for x in (512, 1024, 4096)]) == pytest.approx(1.5)
    assert scaling.slope([(512, 1.0)]) is None


def test_what_would_take_too_long_is_skipped_and_said(capsys):
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
    scaling.print_rows(rows, fits)
    printed = capsys.readouterr().out
    assert "standard at 1,024 skipped: expected to take more than 240 s" in printed
    assert "500" in printed


def test_a_process_that_fails_leaves_its_reason():
    row = scaling.measure_apart("no such mixer", 512, [])
    assert row["skipped"].startswith("KeyError")


def test_one_measurement_in_a_process_of_its_own():
    row = scaling.measure_apart("linear", 512, [])
    assert row["seconds"] > 0
    # At least the outputs and the three gradients: 4 tensors of 512 tokens, 64 wide, float32.
    assert row["peak_bytes"] > 4 * 512 * 64 * 4


def test_a_whole_mixer_of_a_configuration():
    row = scaling.measure_apart("based", 512, [], whole=True)  # two mixers in turn
    assert row["seconds"] > 0 and row["peak_bytes"] > 4 * 512 * 64 * 4


def test_what_claims_linear_time_is_found(tmp_path, monkeypatch):
    found = scaling.linear_time()
    assert {"linear", "sliding_window", "based", "lstm", "tensor_linear"} <= set(found)
    assert not {"standard", "sparse", "tensor", "hybrid"} & set(found)
    measured = []
    monkeypatch.setattr(scaling, "measure_apart", lambda mixer, length, rows, whole: (
        measured.append((mixer, length, whole)),
        {"mixer": mixer, "length": length, "seconds": 1.0 * length, "peak_bytes": length},
    )[1])  # fmt: skip
    scaling.main(["whole=true", "max_length=1024", f"record={tmp_path / 'whole.json'}"])
    assert measured == [(name, length, True) for length in (512, 1024) for name in found]


def test_whole_mixers_have_one_window_at_every_length(monkeypatch):
    mixers = []
    monkeypatch.setattr(scaling, "mixers_pass", lambda made, *_, **__: mixers.extend(made))
    for length in scaling.LENGTHS[:2]:
        scaling.one_pass("sliding_window", length, whole=True)
    assert [mixer.window for mixer in mixers] == [128, 128]


def test_record_and_figure_of_a_small_run(tmp_path, monkeypatch):
    monkeypatch.setattr(scaling, "LENGTHS", [32, 64])
    monkeypatch.setattr(scaling, "measure_apart", lambda mixer, length, rows, whole: {
        "mixer": mixer, "length": length, "seconds": length**2.0, "peak_bytes": 1000 * length,
    })  # fmt: skip
    scaling.main([f"record={tmp_path / 'scaling.json'}"])
    record = json.loads((tmp_path / "scaling.json").read_text())
    assert record["exponents"]["sparse"]["seconds"] == pytest.approx(2.0)
    assert record["exponents"]["linear"]["peak_bytes"] == pytest.approx(1.0)
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_forms_are_timed_at_every_length(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(forms, "REPEATS", 2)
    forms.main(["lengths=16,24", f"record={tmp_path / 'forms.json'}"])
    rows = json.loads((tmp_path / "forms.json").read_text())["rows"]
    assert [row["length"] for row in rows] == [16, 24]
    assert all(row["sparse blocked"] > 0 and row["linear dense"] > 0 for row in rows)
    assert "linear chunked" in capsys.readouterr().out


def test_committed_record_has_every_length():
    record = json.loads((RECORDS / "scaling.json").read_text())
    assert {(row["mixer"], row["length"]) for row in record["rows"]} == {
        (mixer, length) for mixer in scaling.MIXERS for length in scaling.LENGTHS
    }


def test_an_unknown_model_is_refused_before_anything_is_measured():
    with pytest.raises(UserError, match=r"mixers=gal: must be among .*gla"):
        scaling.main(["mixers=[gla,gal]"])
