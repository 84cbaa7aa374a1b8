"""Watching a sweep: a live table on a terminal, a line per finished cell elsewhere."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sweeps.plan import Planned, Sweep
from sweeps.progress import besides, summary_line, which_cell

POLL_SECONDS = 1.0
TOLD_EVERY = 600.0  # seconds between lines where there is no terminal


class Watcher:
    """Looks at the runs' folders once a second, from a thread of its own, whatever the launcher.

    New records are merged into the results table as they come.  Looking takes a tenth of the
    time at most: it grows rarer where there are many cells or the file system is slow.  What goes
    wrong while looking (a full disk) is raised at the end; the cells go on.
    """

    def __init__(self, sweep: Sweep, chosen: Sequence[Planned]) -> None:
        self.sweep = sweep
        self.chosen = list(chosen)
        self.besides = besides([planned.cell for planned in self.chosen])
        self.seen = {p.cell.name: p.folder.stamp() for p in self.chosen}
        self.finished: dict[str, str] = {}
        self.failure: Exception | None = None
        self.started = self._told = time.monotonic()
        self.console = Console(markup=False, emoji=False, highlight=False)
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
            self._look_until_told(self._tell_now_and_then)
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
            stamp = planned.folder.stamp()
            if stamp == self.seen[name]:
                continue
            record = planned.folder.record()
            if record:
                fresh.append((planned, stamp, record))
        if fresh:
            self.sweep.merge(planned.folder for planned, _, _ in fresh)
        for planned, stamp, record in fresh:
            self.seen[planned.cell.name] = stamp
            self.finished[planned.cell.name] = record["status"]
            line = f"[{len(self.finished)}/{len(self.chosen)}] "
            line += summary_line(planned.cell.config, record, self.besides[planned.cell.name])
            self.console.print(line, soft_wrap=True)

    def _render(self) -> Group:
        return Group(
            running_table(self.sweep.experiment.name, self._running(), self.besides),
            Text(self._footer()),
        )

    def _running(self) -> list[Planned]:
        open_cells = [p for p in self.chosen if p.cell.name not in self.finished]
        return [planned for planned in open_cells if planned.folder.is_running()]

    def _tell_now_and_then(self) -> None:
        """Print how it stands and what runs: all that a log shows while no cell ends."""
        if time.monotonic() - self._told < TOLD_EVERY:
            return
        self._told = time.monotonic()
        told = [self._footer()]
        for planned in self._running():
            at = planned.folder.progress() or {}
            step = f"step {at['step']:,} of {at.get('steps', 0):,}" if "step" in at else "data"
            which = which_cell(planned.cell.config, self.besides[planned.cell.name])
            told.append(f"  {which}: {step}")
        self.console.print("\n".join(told), soft_wrap=True)

    def _footer(self) -> str:
        done, total = len(self.finished), len(self.chosen)
        passed = time.monotonic() - self.started
        counts = Counter(self.finished.values())
        parts = [f"{done} of {total} cells"] + [f"{n} {status}" for status, n in counts.items()]
        if done:
            left = passed / done * (total - done)
            parts.append(f"{passed:.0f} s passed, about {left:.0f} s left")
        return " · ".join(parts)


def running_table(name: str, running: Sequence[Planned], told: Mapping[str, str]) -> Table:
    """Return a table of the running cells; ``told`` is what `besides` says of the sweep's."""
    table = Table(title=f"{name}: running now", title_justify="left")
    for column in ("cell", "phase", "step", "loss", "chains right", "rate"):
        table.add_column(column)
    for planned in running:
        which = which_cell(planned.cell.config, told.get(planned.cell.name, ""))
        table.add_row(which, *_cells_of(planned.folder.progress() or {}))
    return table


def _cells_of(progress: dict[str, Any]) -> list[str]:
    phase = "evaluation" if progress.get("phase") == "evaluation" else "training"
    return [
        "data" if "step" not in progress else phase,
        f"{progress.get('step', 0)}/{progress.get('steps', '?')}",
        _number(progress.get("train_loss"), "{:.3f}"),
        _number(progress.get("validation_chain_exact_match"), "{:.1%}"),
        _number(progress.get("learning_rate"), "{:.2g}"),
    ]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
