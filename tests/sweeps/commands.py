"""Run the entry points inside the test's process: a second instead of five."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass

import pytest
from hydra.core.global_hydra import GlobalHydra

import cli
import evaluate
import sweep
import train

PROGRAMS = {"train.py": train.command_line, "sweep.py": sweep.main, "evaluate.py": evaluate.main}

# A cell of one second.
TINY = (
    "task=arithmetic task.size=2 model.dim=8 model.num_layers=1 model.num_heads=2 recipe.steps=4 "
    "recipe.validate_every=2 data.train=300 data.validation=20 data.test=20 logger=none"
).split()


@dataclass
class Outcome:
    status: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line of standard error; fails when there are more."""
        lines = [line for line in self.err.splitlines() if line.strip()]
        assert len(lines) == 1, self.err
        return lines[0]


class Commands:
    """Runs `python PROGRAM ARGUMENTS` in a folder of its own."""

    def __init__(self, folder, monkeypatch, capsys):
        self.folder, self.monkeypatch, self.capsys = folder, monkeypatch, capsys
        monkeypatch.chdir(folder)

    def __call__(self, program: str, *arguments: str) -> Outcome:
        self.monkeypatch.setattr(sys, "argv", [program, *arguments])
        self.monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # so that its absence is what is restored
        self.monkeypatch.delenv("HYDRA_FULL_ERROR")
        GlobalHydra.instance().clear()
        self.capsys.readouterr()
        status = 0
        try:
            cli.main(PROGRAMS[program])
        except SystemExit as stop:
            status = int(stop.code or 0)
        finally:
            GlobalHydra.instance().clear()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        captured = self.capsys.readouterr()
        return Outcome(status, captured.out, captured.err)


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    return Commands(tmp_path, monkeypatch, capsys)
