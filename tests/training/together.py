"""Tiny trainings by however many processes torchrun started; the first prints them as JSON."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import torch
from tiny import figures, tiny_trainer

from tasks.arithmetic import Arithmetic
from training.distributed import ALONE, Processes, joined
from training.trainer import Interrupted

TASK = Arithmetic(2)
CASES = {
    "muon": {"optimizer": "muon", "gradient_clip": 0.5, "batch_size": 15, "average_decay": 0.9},
    "adamw": {"optimizer": "adamw", "mixer": "sparse", "learning_rate": 3e-3},
    "partly right, stopped early": {
        "task": Arithmetic(1),
        "optimizer": "muon",
        "steps": 200,
        "validate_every": 20,
        "stop_at": 0.05,
    },
    "a batch of one": {"batch_size": 199, "steps": 6, "validate_every": 2, "mixer": "linear"},
}
DROPOUT = {"optimizer": "muon", "dropout": 0.2, "average_decay": 0.9}
STOP_AFTER = 17


def curves(folder: Path, processes: Processes = ALONE) -> dict:
    """Train every case; return each curve without its seconds, and whether all weights agree."""
    found = {}
    for name, changes in CASES.items():
        changes = {"task": TASK, **changes}
        trainer = tiny_trainer(folder / name, processes=processes, **changes)
        state = trainer.fit()
        rows = [[row.step, *figures(row)] for row in state.curve]
        found[name] = {"curve": rows, "agree": agree(trainer, processes)}
    return found


def agree(trainer, processes: Processes) -> bool:
    """Whether every process has come to the same weights, to the bit."""
    own = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
    same = torch.equal(own, processes.from_first(lambda: own))
    return not processes.any(not same)


def interrupted(folder: Path, processes: Processes) -> dict:
    """Train with dropout, whole, and stopped by the last process alone and resumed."""
    whole = tiny_trainer(folder / "whole", TASK, processes=processes, **DROPOUT)
    whole.fit()
    asked = iter(range(1, 1000))
    last = processes.rank == processes.size - 1
    stopped = tiny_trainer(
        folder / "parts",
        TASK,
        processes=processes,
        should_stop=lambda: next(asked) == STOP_AFTER and last,
        **DROPOUT,
    )
    with contextlib.suppress(Interrupted):
        stopped.fit()
    torch.manual_seed(12345 + processes.rank)  # what new processes happen to have
    resumed = tiny_trainer(folder / "parts", TASK, processes=processes, **DROPOUT)
    resumed.fit()
    pairs = zip(whole.model.parameters(), resumed.model.parameters(), strict=True)
    same = all(torch.equal(a, b) for a, b in pairs)
    return {
        "stopped_at": stopped.state.step,
        "steps": resumed.state.step,
        "same": not processes.any(not same),
        "agree": agree(resumed, processes),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    root = Path(sys.argv[1])
    with joined("cpu") as processes:
        found = {"curves": curves(root, processes), "interrupted": interrupted(root, processes)}
        files = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
        if processes.first:
            print(json.dumps({"size": processes.size, **found, "files": files}))
