"""The measuring scripts end to end on a CPU in miniature: records, resuming, verdicts, hours."""

import json

import pytest
import torch
from bare import run_bare

from benchmarks.gpu import check, hours, plan, speed
from benchmarks.gpu.shared import Record
from config.compose import compose_plain
from errors import RunError, UserError

CPU = torch.device("cpu")


def test_check_bare_and_resumed(tmp_path, capsys):
    words = ["--device", "cpu", "--small"]
    done = run_bare(tmp_path, "check", "--out", tmp_path / "first", *words)
    assert done.returncode == 0, done.stderr
    assert "0 still missing" in done.stdout.splitlines()[-1]
    rows = json.loads((tmp_path / "first" / "check.json").read_text())["rows"]
    assert {key.split()[0] for key in rows} == {
        "attention", "model", "generation", "evaluation", "twice", "interrupted",
    }  # fmt: skip
    assert all(row["status"] == "done" for row in rows.values())
    assert all(row["error"] == 0 for row in rows.values() if row["tolerance"] is None)  # a CPU
    given = ["--from", str(tmp_path / "first"), "--out", str(tmp_path / "second")]
    check.main([*given, *words, "--minutes", "0"])
    assert json.loads((tmp_path / "second" / "check.json").read_text())["rows"] == rows
    assert "0 still missing" in capsys.readouterr().out
    wrong = {**rows, "model linear float32": {**rows["model linear float32"], "error": 1.0}}
    (tmp_path / "first" / "check.json").write_text(json.dumps({"rows": wrong}))
    with pytest.raises(RunError, match="1 checks failed: model linear float32"):
        check.main([*given, *words])


def test_check_notices_a_wrong_attention(monkeypatch):
    assert check.attention("sparse-blocked", "float32", 20, 8, CPU)["error"] < 1e-5
    monkeypatch.setattr(check, "BLOCK", 4)  # the reference's block, not the form's
    assert check.attention("sparse-blocked", "float32", 20, 8, CPU)["error"] > 1e-2


@pytest.mark.parametrize("place", [0, 1, 2])
def test_check_notices_what_is_not_a_number(place):
    expected = [torch.ones(3) for _ in range(3)]
    found = [x.clone() for x in expected]
    found[place][1] = torch.nan
    error = check.largest_error(found, expected)
    for tolerance in (1e-5, None):
        word = check.verdict({"status": "done", "error": error, "tolerance": tolerance})[2]
        assert word.startswith("WRONG"), tolerance


def test_check_notices_a_loss_that_is_not_a_number(monkeypatch):
    right = check.masked_loss

    def wrong(net, batch):  # its gradients are right
        return right(net, batch) + (torch.nan if net.head.weight.dtype == torch.float32 else 0)

    monkeypatch.setattr(check, "masked_loss", wrong)
    row = check.whole_model("linear", "float32", check.Arithmetic(2), 16, CPU)
    assert check.verdict({"status": "done", **row})[2] == "WRONG"


def test_the_smallest_difference_is_not_lost():
    tiny = torch.tensor([1e-300], dtype=torch.float64)
    assert check.largest_error([tiny], [torch.zeros(1)]) == 1e-300


def test_speed_bare_resumed_and_its_hours(tmp_path, capsys):
    words = "--device cpu --dims 16 --lengths 87 --batch 2 --modes eager graph --side 1 2".split()
    words += "--sequences 6 --models sparse".split()
    first = ["--settings", "wide"]
    done = run_bare(tmp_path, "speed", "--out", tmp_path / "a", *words, *first)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "a" / "speed.json").read_text())["rows"]
    assert {row["kind"] for row in rows.values()} == {"matmul", "train", "evaluate"}
    measured = rows["evaluate sparse D=16 L=87"]
    assert measured["generated"] > 0 and measured["generated_of_own"] == 0
    extrapolated = measured["seconds"] * 1e5 / 6
    assert measured["extrapolated_to_100000_seconds"] == pytest.approx(extrapolated)
    speed.main(["--out", str(tmp_path / "b"), "--from", str(tmp_path / "a"), *words])
    again = json.loads((tmp_path / "b" / "speed.json").read_text())["rows"]
    assert again.items() > rows.items()  # what was measured stays as it was
    assert {row["setting"] for row in again.values() if row["kind"] == "train"} == set(
        speed.SETTINGS
    )
    assert all(row["tokens_per_second"] > 0 for row in again.values() if row["kind"] == "train")
    assert "0 still missing" in capsys.readouterr().out


def test_processes_side_by_side_add_up():
    row = speed.side_by_side(16, 2, 1, CPU)
    assert row["processes"] == 2 and row["tokens_per_second"] > 0


def test_a_batch_that_does_not_fit_is_halved(monkeypatch):
    tried = []

    def takes_at_most_100(net, setting, mode, size, length, device):
        tried.append(size)
        if size > 100:
            raise torch.OutOfMemoryError
        return 0.5, 5

    monkeypatch.setattr(speed, "seconds_per_step", takes_at_most_100)
    row = speed.training("wide", "eager", "linear", 16, 87, None, CPU)
    assert tried == [512, 256, 128, 64]
    assert (row["batch"], row["batch_wanted"], row["tokens_per_second"]) == (64, 512, 64 * 87 / 0.5)


def test_settings_are_those_of_the_recipes():
    for name in ("long", "paper"):
        config = compose_plain("train", [f"recipe={name}"])["recipe"]
        ours = vars(speed.SETTINGS[name].recipe)
        for key in (
            "batch_size",
            "optimizer",
            "betas",
            "gradient_clip",
            "average_decay",
            "dropout",
        ):
            assert ours[key] == config[key], (name, key)
    assert compose_plain("train", ["recipe=paper"])["recipe"]["precision"] == "float32"


@pytest.mark.parametrize("model", ["standard", "sparse", "linear"])
def test_the_static_loss_is_the_trainers(model):
    net = speed.build(model, 16, 40, 0.0, CPU)
    batch = speed.made_up(3, 40, CPU).batch(torch.arange(3))
    expected = speed.masked_loss(net, batch)
    torch.testing.assert_close(speed.static_loss(net, batch.tokens, batch.loss_mask), expected)


def test_a_failure_stops_no_other_and_is_measured_again(tmp_path):
    record = Record(tmp_path / "x.json", [], CPU)

    def fail():
        raise ValueError("broken")

    record.measure("bad", fail)
    record.measure("good", lambda: {"error": 1.0})
    assert record.rows["bad"]["status"] == "failed: ValueError: broken"
    assert set(Record(tmp_path / "y.json", [tmp_path / "x.json"], CPU).rows) == {"good"}
    with pytest.raises(UserError, match="cannot be read"):
        Record(tmp_path / "y.json", [tmp_path / "absent.json"], CPU)


def made_up_speed(dims, setting="long"):
    rows = [
        {"kind": "train", "setting": setting, "mode": mode, "model": model, "dim": dim,
         "length": 87, "tokens_per_second": rate}
        for model in ("standard", "linear", "sparse")
        for dim in dims
        for mode, rate in (("eager", 1000.0), ("graph", 4000.0))
    ]  # fmt: skip
    rows += [
        {"kind": "evaluate", "model": model, "dim": dim, "length": 87, "sequences": 10,
         "seconds": 1.0}
        for model in ("standard", "linear", "sparse")
        for dim in dims
    ]  # fmt: skip
    rows += [
        {"kind": "side", "setting": "long", "dim": dim, "processes": count,
         "tokens_per_second": 1000.0 * count}
        for dim in (16, 32)
        for count in (1, 3)
    ]  # fmt: skip
    return [{"status": "done", **row} for row in rows]


def test_hours_by_hand(tmp_path):
    planned = plan.plan("quick", [], tmp_path)
    found = hours.expected(planned, made_up_speed([16, 32, 64]))
    tokens = sum(1500 * 64 * cell["mean_length"] for cell in planned["cells"])
    wide = sum(
        1500 * 64 * cell["mean_length"]
        for cell in planned["cells"]
        if cell["config"]["model"]["dim"] == 64
    )
    assert found["cells"] == 27 and found["unknown"] == 0
    assert found["eager"] == pytest.approx(tokens / 1000 / 3600)
    assert found["fastest"] == pytest.approx(tokens / 4000 / 3600)
    assert found["side_by_side"] == pytest.approx((wide + (tokens - wide) / 3) / 1000 / 3600)
    assert found["evaluation"] == pytest.approx(27 * 1000 * 0.1 / 3600)


def test_a_gain_counts_only_for_the_setting_that_it_was_measured_with(tmp_path):
    planned = plan.plan("quick", ["recipe=paper", "model.dim=16"], tmp_path)
    found = hours.expected(planned, made_up_speed([16], "paper"))
    assert found["unknown"] == 0
    assert found["side_by_side"] == found["eager"]


def test_what_was_not_measured_is_in_no_sum(tmp_path):
    planned = plan.plan("quick", [], tmp_path)
    found = hours.expected(planned, made_up_speed([16]))
    assert found["unknown"] == 18
    none = hours.expected(planned, [])
    assert none["unknown"] == 27 and none["eager"] is None
