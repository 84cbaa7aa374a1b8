"""`python -m benchmarks check` in miniature on a CPU; that it notices what is wrong."""

import json

import pytest
import torch

from benchmarks import check
from benchmarks.shared import against_reference as against
from common import RunError
from tasks.arithmetic import Arithmetic

CPU = torch.device("cpu")


def test_everything_is_right_on_a_cpu(tmp_path, capsys):
    path = tmp_path / "check.json"
    check.main(["small=true", f"record={path}"])
    rows = json.loads(path.read_text())["rows"]
    assert {row["check"].split()[0] for row in rows} == {
        "attention", "model", "generation", "evaluation", "twice", "interrupted",
    }  # fmt: skip
    assert {row["verdict"] for row in rows} == {"ok", "equal to the bit"}
    assert all(row["error"] == 0 for row in rows if row["tolerance"] is None)
    assert "interrupted linear" in capsys.readouterr().out


def test_what_is_wrong_is_told_and_what_raises_stops_no_other(tmp_path, monkeypatch, capsys):
    def broken():
        raise ValueError("broken kernel")

    found = [check.Check("bad", lambda: 1.0, 1e-3), check.Check("broken", broken, 1e-3),
             check.Check("good", lambda: 1e-4, 1e-3)]  # fmt: skip
    monkeypatch.setattr(check, "checks", lambda options, device: iter(found))
    path = tmp_path / "check.json"
    with pytest.raises(RunError, match="2 checks failed: bad, broken"):
        check.main([f"record={path}"])
    rows = json.loads(path.read_text())["rows"]
    assert [row["verdict"] for row in rows] == ["WRONG", "failed", "ok"]
    assert "broken kernel" in rows[1]["traceback"]


def test_compiled_models_are_checked_where_asked(monkeypatch):
    names = {
        compile: [c.name for c in check.checks(check.Options(compile=compile), CPU)]
        for compile in (False, True)
    }
    assert set(names[True]) - set(names[False]) == {
        f"compiled {name} {precision}" for name in check.MIXERS for precision in check.MODEL
    }
    eager = lambda hidden, dynamic: hidden  # noqa: E731
    monkeypatch.setattr(torch, "compile", eager)
    assert against.whole_model("linear", "float32", Arithmetic(2), 16, CPU, compiled=True) < 1e-3


def test_a_wrong_attention_is_noticed(monkeypatch):
    assert against.attention("sparse-blocked", "float32", 20, 8, CPU) < 1e-5
    monkeypatch.setattr(against, "BLOCK", 4)  # the reference's block, not the form's
    assert against.attention("sparse-blocked", "float32", 20, 8, CPU) > 1e-2


@pytest.mark.parametrize("wrong_one", [0, 1, 2])
def test_what_is_not_a_number_is_wrong(wrong_one):
    expected = [torch.ones(3) for _ in range(3)]
    found = [x.clone() for x in expected]
    found[wrong_one][1] = torch.nan
    error = against.largest_error(found, expected)
    for tolerance in (1e-5, None):
        assert check.verdict(error, tolerance) == "WRONG"


def test_a_loss_that_is_not_a_number_is_wrong(monkeypatch):
    right = against.training_loss

    def wrong(net, *others):  # its gradients are right
        return right(net, *others) + (torch.nan if net.head.weight.dtype == torch.float32 else 0)

    monkeypatch.setattr(against, "training_loss", wrong)
    error = against.whole_model("linear", "float32", Arithmetic(2), 16, CPU)
    assert check.verdict(error, 1e-3) == "WRONG"


def test_a_token_of_another_choice_is_noticed(monkeypatch):
    right = against.generate

    def wrong(model, sequences, device):
        written = right(model, sequences, device=device)
        written.tokens[3, written.lengths[3] - 1] += 1
        return written

    assert against.evaluation("linear", Arithmetic(2), 16, CPU) == 0
    monkeypatch.setattr(against, "generate", wrong)
    assert against.evaluation("linear", Arithmetic(2), 16, CPU) == 1


def test_the_smallest_difference_is_not_lost():
    tiny = torch.tensor([1e-300], dtype=torch.float64)
    assert against.largest_error([tiny], [torch.zeros(1)]) == 1e-300
