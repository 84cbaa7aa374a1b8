"""Where there is no terminal: a line at the start, at a resume, and every so often."""

from sweeps import progress
from sweeps.progress import CellProgress
from training.events import Evaluated, TrainingStarts, TrainingStep, Validation


def told(capsys, monkeypatch, *events, every=0.0):
    monkeypatch.setattr(progress, "TOLD_EVERY", every)
    monkeypatch.delenv("COTCOST_WORKER", raising=False)
    with CellProgress(enabled=True) as listener:
        for event in events:
            listener(event)
    return capsys.readouterr().err.splitlines()


def test_start_and_resume_are_told_apart(capsys, monkeypatch):
    assert told(capsys, monkeypatch, TrainingStarts(0, 1500)) == ["training: at most 1,500 steps"]
    assert told(capsys, monkeypatch, TrainingStarts(700, 1500)) == [
        "training: continues after step 700, at most 1,500 steps"
    ]


def test_a_line_every_so_often_and_none_between(capsys, monkeypatch):
    events = [
        Validation(50, 1.0, 0.5, 0.5, 0.25, 1e-3), TrainingStep(1200, 1500, 0.125),
        Evaluated(10, 1000),
    ]  # fmt: skip
    assert told(capsys, monkeypatch, *events) == [
        "training: 1,200 of 1,500, loss 0.1250, chains 25.0%", "evaluating: 10 of 1,000",
    ]  # fmt: skip
    assert told(capsys, monkeypatch, *events, every=3600.0) == []


def test_one_of_several_cells_is_silent(capsys, monkeypatch):
    monkeypatch.setenv("COTCOST_WORKER", "1")
    CellProgress(enabled=True)(TrainingStarts(0, 1500))
    assert capsys.readouterr().err == ""
