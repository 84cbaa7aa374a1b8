"""The console scripts: each runs an entry point of the project as ``python`` would."""

from __future__ import annotations

import runpy

from cotcost import ROOT


def train() -> None:
    """``python train.py``."""
    _script("train.py")


def sweep() -> None:
    """``python sweep.py``."""
    _script("sweep.py")


def evaluate() -> None:
    """``python evaluate.py``."""
    _script("evaluate.py")


def plots() -> None:
    """``python -m plots``."""
    runpy.run_module("plots", run_name="__main__", alter_sys=True)


def tasks() -> None:
    """``python -m tasks``."""
    runpy.run_module("tasks", run_name="__main__", alter_sys=True)


def _script(name: str) -> None:
    runpy.run_path(str(ROOT / name), run_name="__main__")
