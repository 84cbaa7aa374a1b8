"""A command-line sweep of six cells of about two seconds each, in its own folder."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
from processes import ROOT

CELLS = 6
NOT_MEASURED = {
    "train_seconds", "eval_seconds", "seconds_to_90", "device", "torch_version", "commit",
    "finished_at",
}  # fmt: skip
WORDS = [
    "task.size=2", "model.num_layers=1", "model.num_heads=2", "recipe.batch_size=16",
    "recipe.steps=300", "recipe.validate_every=50", "recipe.stop_at=null", "data.train=400",
    "data.validation=30", "data.test=60",
]  # fmt: skip


class SmallSweep:
    """`python sweep.py experiment=quick` with small settings; `words` override some."""

    def __init__(self, folder: Path, *words: str, only: str = "only.dim=[8,16]") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        changed = {word.split("=")[0] for word in words}
        kept = [word for word in WORDS if word.split("=")[0] not in changed]
        listed = ",".join(f'"{word}"' for word in [*kept, *words])
        self.arguments = [
            sys.executable, str(ROOT / "sweep.py"), "experiment=quick", only, "only.seed=0",
            "logger=none", "plot=false", "checkpoint_seconds=0.3", f"overrides=[{listed}]",
        ]  # fmt: skip

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen:
        """Start the sweep in its own session, with output to `sweep.log`."""
        with (self.folder / "sweep.log").open("a") as log:
            return subprocess.Popen(
                [*self.arguments, *arguments], cwd=self.folder, stdout=log, stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment}, start_new_session=True,
            )  # fmt: skip

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        """Run the sweep and wait for it to end."""
        return subprocess.run(
            [*self.arguments, *arguments], cwd=self.folder, capture_output=True, text=True,
            env={**os.environ, **environment}, timeout=900, check=False,
        )  # fmt: skip

    def table(self) -> pd.DataFrame:
        """The measured columns of the results table, as text."""
        path = self.folder / "outputs/quick/results.csv"
        whole = pd.read_csv(path, dtype=str, keep_default_na=False)
        return whole[[column for column in whole if column not in NOT_MEASURED]]

    def records(self) -> list[dict]:
        """All records of the runs; raises if one cannot be read."""
        return [json.loads(p.read_text()) for p in sorted(self.folder.glob("runs/*/record.json"))]

    def is_done(self) -> bool:
        return [record["row"]["status"] for record in self.records()] == ["done"] * CELLS

    def check_equal(self, undisturbed: pd.DataFrame) -> None:
        """Check that each cell is complete and listed once, and that the table is `undisturbed`."""
        table = self.table()
        assert table["cell"].is_unique
        pd.testing.assert_frame_equal(table, undisturbed)
        assert {record["row"]["status"] for record in self.records()} == {"done"}


def descendants(pid: int) -> list[int]:
    """Return all descendant processes of `pid`."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for known in found:  # `found` grows in the loop
        found += [child for child, parent in parents.items() if parent == known]
    return found[1:]
