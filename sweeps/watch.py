"""Watching a sweep: a live table on a terminal, a line per finished cell elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from config.grid import describe
from sweeps.plan import Planned, Sweep
from sweeps.progress import summary_line

POLL_SECONDS = 1.0


class Watcher:
    """Looks at the runs' folders once a second, from a thread of its own, whatever the launcher.

    New records are merged into the results table as they come.  Looking takes a tenth of the
    time at most: it grows rarer where there are many cells or the file system is slow.  What goes
    wrong while looking (a full disk) is raised at the end; the cells go on.
    """

    def __init__(self, sweep: Sweep, chosen: Sequence[Planned]) -> None:
        self.sweep = sweep
        self.chosen = list(chosen)
        self.seen = {p.cell.name: p.run.stamp() for p in self.chosen}
        self.finished: dict[str, str] = {}
        self.failure: Exception | None = None
        self.started = time.monotonic()
        self.console = Console()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        self._stop.set()
        self._thread.join()
        if self.failure is not None and kind is None:
            raise self.failure

    def _watch(self) -> None:
        if not self.console.is_terminal:
            self._look_until_told(lambda: None)
            return
        with Live(console=self.console, refresh_per_second=2, transient=True) as live:
            self._look_until_told(lambda: live.update(self._render()))

    def _look_until_told(self, show: Callable[[], None]) -> None:
        pause = POLL_SECONDS
        while not self._stop.wait(pause):
            started = time.monotonic()
            self._look_safely()
            show()
            pause = max(POLL_SECONDS, 9 * (time.monotonic() - started))
        self._look_safely()

    def _look_safely(self) -> None:
        try:
            self._look()
            self.failure = None
        except Exception as error:
            self.failure = error

    def _look(self) -> None:
        fresh = []
        for planned in self.chosen:
            name = planned.cell.name
            stamp = planned.run.stamp()
            if stamp == self.seen[name]:
                continue
            record = planned.run.record()
            if record:
                fresh.append((planned, stamp, record))
        if fresh:
            self.sweep.merge(planned.run for planned, _, _ in fresh)
        for planned, stamp, record in fresh:
            self.seen[planned.cell.name] = stamp
            self.finished[planned.cell.name] = record["status"]
            line = f"[{len(self.finished)}/{len(self.chosen)}] "
            self.console.print(
                line + summary_line(planned.cell.config, record),
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    def _render(self) -> Group:
        table = Table(title=f"{self.sweep.experiment.name}: running now", title_justify="left")
        for column in ("task", "n", "model", "D", "seed", "phase", "step", "loss", "chains right"):
            table.add_column(column)
        for planned in self.chosen:
            progress = planned.run.progress() if planned.cell.name not in self.finished else None
            if progress and planned.run.is_running():
                table.add_row(*_cells_of(planned, progress))
        return Group(table, Text(self._footer()))

    def _footer(self) -> str:
        done, total = len(self.finished), len(self.chosen)
        passed = time.monotonic() - self.started
        counts = Counter(self.finished.values())
        parts = [f"{done} of {total} cells"] + [f"{n} {status}" for status, n in counts.items()]
        if done:
            left = passed / done * (total - done)
            parts.append(f"{passed:.0f} s passed, about {left:.0f} s left")
        return " · ".join(parts)


def _cells_of(planned: Planned, progress: dict[str, Any]) -> list[str]:
    which = describe(planned.cell.config)
    phase = "evaluation" if progress.get("phase") == "evaluation" else "training"
    return [
        which["task"],
        str(which["size"]),
        which["model"],
        str(which["dim"]),
        str(which["seed"]),
        "data" if "step" not in progress else phase,
        f"{progress.get('step', 0)}/{progress.get('steps', '?')}",
        _number(progress.get("train_loss"), "{:.3f}"),
        _number(progress.get("validation_chain_exact_match"), "{:.1%}"),
    ]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def print_plan(plan: Sequence[Planned], seconds: dict[str, float], flops: dict[str, float]) -> None:
    """Print every cell with how it stands and what it is estimated to cost."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table()
    for column in (
        "cell",
        "task",
        "n",
        "model",
        "layers",
        "D",
        "seed",
        "status",
        "TFLOP",
        "minutes",
    ):
        table.add_column(column, justify="right" if column in ("TFLOP", "minutes") else "left")
    for planned in plan:
        which, name = describe(planned.cell.config), planned.cell.name
        status = planned.status + (f": {planned.reason}" if planned.reason else "")
        table.add_row(
            name,
            which["task"],
            str(which["size"]),
            which["model"],
            str(which["layers"]),
            str(which["dim"]),
            str(which["seed"]),
            status,
            f"{flops[name] / 1e12:.3g}",
            f"{seconds[name] / 60:.3g}",
        )
    console.print(table)


def print_summary(plan: Sequence[Planned], records: Mapping[str, Any]) -> None:
    """Print answer accuracies by task, size and model against D, and the failures."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    dims = sorted({planned.cell.config.model.dim for planned in plan})
    lines: dict[tuple, dict[int, list[str]]] = {}
    for planned in plan:
        which = describe(planned.cell.config)
        key = (which["task"], str(which["size"]), which["model"], str(which["layers"]))
        shown = _shown(planned, records.get(planned.cell.name))
        lines.setdefault(key, {}).setdefault(which["dim"], []).append(shown)
    table = Table(title="answer accuracy", title_justify="left")
    for column in ("task", "n", "model", "layers", *(f"D={dim}" for dim in dims)):
        table.add_column(column, justify="right" if column.startswith("D=") else "left")
    for key, found in lines.items():
        table.add_row(*key, *("/".join(found.get(dim, [""])) for dim in dims))
    console.print(table)
    for planned in plan:
        if planned.status == "failed":
            console.print(f"failed: {planned.cell.name}: {planned.reason}", markup=False)


def _shown(planned: Planned, record: Any) -> str:
    if planned.status != "done" or record is None:
        return planned.status
    return f"{record['answer_accuracy']:.1%}"
