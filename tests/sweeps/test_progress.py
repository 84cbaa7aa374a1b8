"""Where there is no terminal: a line at the start, at a resume, and every so often."""

from config.compose import compose_plain
from config.grid import Cell
from config.identity import cell_name
from config.schema import validate_cell
from sweeps import progress
from sweeps.progress import CellProgress, besides, which_cell
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


def test_a_terminal_has_one_bar_a_phase(monkeypatch):
    """A bar made anew knows no rate and no time left."""
    made = []

    class Bar(progress.tqdm):
        def __init__(self, **arguments):
            super().__init__(**arguments)
            made.append(self)

    monkeypatch.setattr(progress, "tqdm", Bar)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.delenv("COTCOST_WORKER", raising=False)
    steps = [TrainingStep(step, 200, 1.0) for step in (50, 100, 200)]
    with CellProgress(enabled=True) as listener:
        for event in (*steps, Evaluated(10, 30), Evaluated(30, 30)):
            listener(event)
    assert [(bar.desc.rstrip(": "), bar.initial, bar.n) for bar in made] == [
        ("training", 50, 200), ("evaluating", 10, 30),
    ]  # fmt: skip


def test_one_of_several_cells_is_silent(capsys, monkeypatch):
    monkeypatch.setenv("COTCOST_WORKER", "1")
    CellProgress(enabled=True)(TrainingStarts(0, 1500))
    assert capsys.readouterr().err == ""


def test_what_varies_in_a_sweep_is_said_of_each_cell():
    def cell(*words):
        config = validate_cell(compose_plain("train", ["task=word", "logger=none", *words]))
        return Cell(cell_name(config), config, ())

    cells = [cell("model.num_layers=1"), cell("model.num_layers=2", "task.monoid=Z60")]
    told = [which_cell(one.config, besides(cells)[one.name]) for one in cells]
    assert told == [
        "word n=16 standard D=64 layers=1 task.monoid=A5 seed=0",
        "word n=16 standard D=64 layers=2 task.monoid=Z60 seed=0",
    ]
    assert besides(cells[:1]) == {cells[0].name: ""}
