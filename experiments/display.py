"""Terminal output: progress of a cell and of a sweep, its plan and its summary."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from tqdm import tqdm

from experiments.config import CellConfig, deciding_settings
from experiments.cost import Estimate, training_flops
from experiments.grid import Cell
from experiments.names import identity, varying_keys
from experiments.plan import Planned, Sweep, counts, one_of_each_training
from training.trainer import Evaluated, Event, TrainingStep, Validation

POLL_SECONDS = 1.0
LOG_SECONDS = 600.0  # between lines where there is no terminal
PATIENCE_SECONDS = 30.0  # with nothing running, as between two cells, until watching ends


class CellProgress:
    """A progress bar for one cell; in a log, a line every half minute."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._bar: tqdm | None = None
        self._phase = ""
        self._exact = 0.0

    def __enter__(self) -> CellProgress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, event: Event) -> None:
        """Show ``event``."""
        match event:
            case Validation():
                self._exact = event.validation_chain_exact_match
            case TrainingStep(step, steps, loss):
                self._show("training", step, steps, f"loss {loss:.4f}, exact {self._exact:.1%}")
            case Evaluated(done, total):
                self._show("evaluating", done, total)

    def _show(self, phase: str, done: int, total: int, postfix: str = "") -> None:
        if not self._enabled:
            return
        if self._bar is None or self._phase != phase:
            if self._bar is not None:
                self._bar.close()
            seconds = 0.1 if sys.stderr.isatty() else 30
            self._bar = tqdm(
                total=total, desc=phase, initial=done, leave=False, mininterval=seconds,
                delay=seconds,
            )  # fmt: skip
            self._phase = phase
        self._bar.set_postfix_str(postfix, refresh=False)
        self._bar.update(done - self._bar.n)


def label(columns: Mapping[str, Any], others: Mapping[str, Any] | None = None) -> str:
    """Return a short label of a cell, such as "lis n=20 linear D=32 seed=1"."""
    words = "{task} n={size} {model} D={dim} seed={seed}".format(**columns)
    return " ".join([words, *(f"{k}={v}" for k, v in (others or {}).items() if v is not None)])


def outcome(row: Mapping[str, Any]) -> str:
    """Return a cell's outcome in a few words."""
    if row["status"] != "done":
        return f"{row['status']} ({row['reason']})"
    words = (
        f"answers {row['answer_accuracy']:.1%} "
        f"[{row['answer_accuracy_low']:.1%}, {row['answer_accuracy_high']:.1%}], "
        f"chains {row['chain_exact_match']:.1%}"
    )
    if row.get("steps") is not None:
        words += f", {row['steps']:,} steps in {duration(row['train_seconds'])}"
    return words


def print_outcome(
    config: CellConfig, record: dict[str, Any] | None, already_done: bool, job: str | None
) -> None:
    """Print a cell's outcome and folder; ``job`` is its place in a multirun, "3/12"."""
    text = f"[{job}] " if job else ""
    text += "already done; force=true runs it again: " if already_done else ""
    text += f"{label(identity(deciding_settings(config)))}: "
    if record is None:
        print(f"{text}another process works on this cell")
    else:
        print(f"{text}{outcome(record['row'])}\nrun: {config.runs_dir}/{record['row']['run']}")


class SweepProgress:
    """Watches runs/ from a thread: prints each finished cell and enters it into the table.

    Shows running cells on a terminal, and one line every ten minutes elsewhere.
    """

    def __init__(self, sweep: Sweep, chosen: Sequence[Planned]) -> None:
        self.sweep = sweep
        self.open = {planned.cell.name: planned for planned in chosen}
        self.before = {name: self._stamp(name) for name in self.open}
        self.total = len(self.open)
        self.varying = other_columns(sweep.cells)
        self.ended: Counter[str] = Counter()
        self._warned = ""
        self.started = self._logged = time.monotonic()
        self.console = Console(markup=False, emoji=False, highlight=False)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> SweepProgress:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def _stamp(self, name: str) -> int | None:
        path = self.sweep.runs[name].record_path(name)
        return path.stat().st_mtime_ns if path.exists() else None

    def _watch(self) -> None:
        if not self.console.is_terminal:
            while not self._stop.wait(POLL_SECONDS):
                self._try_to_look()
                if time.monotonic() - self._logged > LOG_SECONDS:
                    self._logged = time.monotonic()
                    self.console.print(self._footer())
            return
        with Live(console=self.console, refresh_per_second=2, transient=True) as live:
            while not self._stop.wait(POLL_SECONDS):
                self._try_to_look()
                running = [p for p in self.open.values() if p.run.is_running()]
                live.update(Group(running_table(running, self.varying), self._footer()))

    def _try_to_look(self) -> None:
        try:
            self._look()
        except Exception as error:  # the sweep goes on; `__exit__` raises what is still wrong
            if str(error) != self._warned:
                self._warned = str(error)
                self.console.print(f"warning: progress: {type(error).__name__}: {error}")

    def _look(self) -> None:
        for name, planned in list(self.open.items()):
            if self._stamp(name) == self.before[name]:
                continue
            record = planned.run.record(name)
            if record is None:
                continue
            self.sweep.enter([planned.cell])
            self.before[name] = self._stamp(name)
            row = record["row"]
            self.ended[row["status"]] += 1
            if row["status"] == "done":
                del self.open[name]
            which = label(planned.cell.identity, self.varying.get(name))
            done = sum(self.ended.values())
            self.console.print(f"[{done}/{self.total}] {which}: {outcome(row)}", soft_wrap=True)

    def _footer(self) -> str:
        done, passed = sum(self.ended.values()), time.monotonic() - self.started
        text = f"{done} of {self.total} cells in {duration(passed)}"
        if 0 < done < self.total:
            text += f", about {duration(passed / done * (self.total - done))} left"
        return text


def other_columns(cells: Sequence[Cell]) -> dict[str, dict[str, Any]]:
    """Return by cell the varying settings that `label` does not show."""
    keys = varying_keys([deciding_settings(cell.config) for cell in cells])
    names = [n for n in ("format", "layers", "heads") if len({c.identity[n] for c in cells}) > 1]
    return {
        cell.name: {n: cell.identity[n] for n in names} | {k: cell.settings.get(k) for k in keys}
        for cell in cells
    }


def running_table(running: Sequence[Planned], varying: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return a table of the running cells."""
    table = Table("running", "phase", "step", "loss", "chains right", box=None)
    for planned in running:
        at = planned.run.progress()
        table.add_row(
            label(planned.cell.identity, varying.get(planned.cell.name)),
            at.get("phase", "data"),
            f"{at['step']:,}/{at['steps']:,}" if "step" in at else "",
            f"{at['train_loss']:.3f}" if "train_loss" in at else "",
            f"{at['validation_chain_exact_match']:.1%}"
            if "validation_chain_exact_match" in at
            else "",
        )
    return table


def show_status(sweep: Sweep, watch: bool = False) -> None:
    """Print what is done, running and open, and the time left; ``watch`` keeps refreshing."""
    estimate, varying = Estimate.of(sweep), other_columns(sweep.cells)

    def status() -> tuple[Group, bool]:
        plan = sweep.plan()
        running = [planned for planned in plan if planned.status == "running"]
        open_cells = [planned for planned in plan if planned.status not in ("done", "failed")]
        left = seconds_left(open_cells, estimate)
        text = f"{sweep.experiment.name}: {len(plan)} cells: {counts(plan)}"
        if left:
            workers = max(1, len(running))
            text += f"; at most {duration(left / workers)} left on {workers} at a time"
        return Group(running_table(running, varying), text), bool(running)

    group, running = status()
    if not watch:
        console().print(group)
        return
    with Live(group, console=console(), auto_refresh=False) as live:
        last = time.monotonic()
        try:
            while running or time.monotonic() - last < PATIENCE_SECONDS:
                last = time.monotonic() if running else last
                time.sleep(2 * POLL_SECONDS)
                group, running = status()
                live.update(group, refresh=True)
        except KeyboardInterrupt:
            pass


def seconds_left(plan: Iterable[Planned], estimate: Estimate) -> float:
    """Return an upper bound on the seconds that these cells still take on one worker."""
    seconds = 0.0
    for planned in one_of_each_training(plan):
        at = planned.run.progress()
        left = 1 - at.get("step", 0) / at["steps"] if "steps" in at else 1.0
        seconds += left * estimate.seconds(planned.cell)
    return seconds


def print_plan(sweep: Sweep) -> None:
    """Print every cell with its status and estimated cost."""
    estimate, varying, plan = Estimate.of(sweep), other_columns(sweep.cells), sweep.plan()
    table = Table("cell", "", "status", box=None)
    table.add_column("TFLOP", justify="right")
    table.add_column("minutes", justify="right")
    for planned in plan:
        table.add_row(
            planned.cell.name,
            label(planned.cell.identity, varying[planned.cell.name]),
            planned.status + (f": {planned.reason}" if planned.reason else ""),
            f"{training_flops(planned.cell) / 1e12:,.3g}",
            f"{estimate.seconds(planned.cell) / 60:,.3g}",
        )
    console().print(table)
    open_cells = sweep.to_launch(plan)
    seconds = duration(seconds_left(open_cells, estimate))
    print(
        f"{sweep.experiment.name}: {len(plan)} cells: {counts(plan)}; {len(open_cells)} to run, at "
        f"most {seconds} on one worker ({estimate.source})"
    )


def print_accuracies(sweep: Sweep, table: pd.DataFrame) -> None:
    """Print answer accuracies, a line per model and size, a column per D."""
    done = table[table["cell"].isin([cell.name for cell in sweep.cells])]
    done = done[done["status"] == "done"]
    if done.empty:
        return
    index = ["task", "size", *(n for n in ("format", "layers") if done[n].nunique() > 1)]
    index += ["model", *(str(c) for c in done if "." in str(c))]
    percent = (100 * done["answer_accuracy"].astype(float)).round(1).astype(str)
    keys = [done[name].fillna("") for name in index]
    wide = percent.groupby([*keys, done["dim"]]).agg(" ".join).unstack(fill_value="")
    print("answer accuracy (%), seeds side by side, by embedding dimension D")
    print(wide.to_string())


def print_failures(sweep: Sweep) -> None:
    """Print the cells that failed, with the reason."""
    for planned in sweep.plan():
        if planned.status == "failed":
            print(f"failed: {label(planned.cell.identity)}: {planned.reason}", file=sys.stderr)


def console() -> Console:
    """Return a console of fixed width where the output is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 160, markup=False, emoji=False)


def duration(seconds: float) -> str:
    """Return e.g. "40 s", "12 min", "3.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
