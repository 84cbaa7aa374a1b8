"""Terminal output: progress of cells and sweeps, plans, status and outcomes."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hydra.core.hydra_config import HydraConfig
from loky import cpu_count
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from tqdm import tqdm

from experiments.config import CellConfig, deciding_settings
from experiments.d90 import SETTINGS
from experiments.estimate import Estimate, training_flops
from experiments.grid import Cell
from experiments.plan import Sweep, counts, one_of_each_training
from experiments.table import identity, varying_keys
from training.trainer import Evaluated, Event, Listener, TrainingStep, Validation

POLL_SECONDS = 1.0
LOG_SECONDS = 600.0  # between lines where there is no terminal
PATIENCE_SECONDS = 30.0  # watching ends after this long with nothing running
# Overrides that `label` omits.
UNLABELLED = re.compile(r"\+*(task\.(?!size)|model\.(?!dim)|(recipe|measure|data)\b)")


@contextlib.contextmanager
def cell_progress(enabled: bool) -> Iterator[Listener]:
    """A listener that shows a cell's progress: a bar; in a log, a line every half minute."""
    seconds = 0.1 if sys.stderr.isatty() else 30
    bar, shown, exact = tqdm(disable=True), "", 0.0

    def show(phase: str, done: int, total: int, postfix: str = "") -> None:
        nonlocal bar, shown
        if phase != shown:
            bar.close()
            bar = tqdm(
                desc=phase, total=total, initial=done, leave=False, mininterval=seconds,
                delay=seconds, disable=not enabled,
            )  # fmt: skip
            shown = phase
        bar.set_postfix_str(postfix, refresh=False)
        bar.update(done - bar.n)

    def listen(event: Event) -> None:
        nonlocal exact
        match event:
            case Validation():
                exact = event.validation_chain_exact_match
            case TrainingStep(step, steps, loss):
                show("training", step, steps, f"loss {loss:.4f}, exact {exact:.1%}")
            case Evaluated(done, total):
                show("evaluating", done, total)

    try:
        yield listen
    finally:
        bar.close()


def label(columns: Mapping[str, Any]) -> str:
    """A short label of a cell, e.g. "lis n=20 linear D=32 seed=1"."""
    return "{task} n={size} {model} D={dim} seed={seed}".format(**columns)


def labels(cells: Sequence[Cell]) -> dict[str, str]:
    """By cell, its `label` and what else varies among cells of its task, size and model."""
    alike: dict[Any, list[Cell]] = {}
    for cell in cells:
        own = cell.identity
        alike.setdefault((own["task"], own["size"], own["model"]), []).append(cell)
    found: dict[str, str] = {}
    for group in alike.values():
        rows = [cell.columns for cell in group]
        keys = [key for key in SETTINGS if len({row[key] for row in rows}) > 1]
        keys += varying_keys([cell.settings for cell in group])
        for row in rows:
            others = (f"{key}={row[key]}" for key in keys if row.get(key) is not None)
            found[row["cell"]] = " ".join([label(row), *others])
    return found


def typed_settings() -> list[str]:
    """The settings among this job's overrides that `label` omits."""
    words = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    return list(filter(UNLABELLED.match, words))


def outcome(row: Mapping[str, Any]) -> str:
    """A cell's outcome in a few words."""
    if row["status"] != "done":
        return f"{row['status']} ({row['reason']})"
    words = (
        "answers {answer_accuracy:.1%} [{answer_accuracy_low:.1%}, {answer_accuracy_high:.1%}], "
        "chains {chain_exact_match:.1%}"
    ).format(**row)
    if row.get("steps") is not None:
        words += f", {row['steps']:,} steps in {duration(row['train_seconds'])}"
    return words


def print_outcome(
    config: CellConfig, record: dict[str, Any] | None, already_done: bool, job: str | None
) -> None:
    """Print a cell's outcome and folder; `job` is its place in a multirun, "3/12"."""
    text = f"[{job}] " if job else ""
    text += "already done; force=true runs it again: " if already_done else ""
    more = typed_settings() if job else []
    text += f"{' '.join([label(identity(deciding_settings(config))), *more])}: "
    if record is None:
        print(f"{text}skipped: another process is running this cell")
    else:
        print(f"{text}{outcome(record['row'])}\nrun: {config.runs_dir}/{record['row']['run']}")


@contextlib.contextmanager
def sweep_progress(sweep: Sweep, cells: Sequence[Cell], total: int | None = None) -> Iterator[None]:
    """Watch `cells` from a thread: print each one that ends and enter it into the table, above a
    bar; in a log, a line every ten minutes. `total`: how many will run, None if unknown."""
    seen, left = {cell.name: cell.record for cell in cells}, list(cells)
    label_of, stop, warned = labels(sweep.cells), threading.Event(), set[str]()
    seconds = POLL_SECONDS if sys.stderr.isatty() else LOG_SECONDS

    def look() -> None:
        for cell in list(left):
            record = cell.record
            if record is None or record == seen[cell.name]:
                continue
            sweep.enter_records([cell])
            seen[cell.name] = record
            bar.update()
            if record["row"]["status"] == "done":
                left.remove(cell)
            say(f"[{bar.n}/{total or '?'}] {label_of[cell.name]}: {outcome(record['row'])}")

    def watch() -> None:
        while not stop.wait(POLL_SECONDS):
            try:
                look()
            except Exception as error:  # keep sweeping; the last look raises a lasting error
                if str(error) not in warned:
                    say(f"warning: progress: {type(error).__name__}: {error}")
                warned.add(str(error))
            bar.update(0)

    def say(line: str) -> None:
        if sys.stderr.isatty():
            bar.write(line)
        else:
            print(line, flush=True)  # `write` would draw the bar again

    with tqdm(
        total=total, unit="cell", delay=seconds, mininterval=seconds, miniters=0, leave=False
    ) as bar:
        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            look()


def running_table(running: Sequence[Cell], label_of: Mapping[str, str]) -> Table:
    table = Table("running", "phase", "step", "loss", "correct chains", box=None)
    formats = {
        "steps": "{step:,}/{steps:,}",
        "loss": "{loss:.3f}",
        "validation_chain_exact_match": "{validation_chain_exact_match:.1%}",
    }
    for cell in running:
        at = cell.run.progress()
        columns = [form.format(**at) if key in at else "" for key, form in formats.items()]
        table.add_row(label_of[cell.name], at.get("name", "data"), *columns)
    return table


def show_status(sweep: Sweep, watch: bool = False) -> None:
    """Print what is done, running and open, and the time left; `watch` keeps refreshing."""
    estimate, label_of = Estimate(sweep), labels(sweep.cells)
    active = time.monotonic()

    def status() -> tuple[Group, int]:
        """What to print, and the number of running cells."""
        plan = sweep.plan()
        running = [planned.cell for planned in plan if planned.status == "running"]
        left = [planned.cell for planned in sweep.wanted(plan) if planned.status != "failed"]
        text = f"{sweep.experiment.name}: {len(plan)} cells: {counts(plan)}"
        if left:
            workers = max(1, len(running))
            hours = duration(seconds_left(left, estimate) / workers)
            on = f"{workers} worker{'s' * (workers > 1)}"
            text += f"; {len(left)} left, about {hours} on {on}, without early stopping"
            text += more(sweep)
        shown = [running_table(running, label_of), text] if running else [text]
        return Group(*shown), len(running)

    if not watch:
        console().print(status()[0])
        return
    with Live(console=console(), auto_refresh=False) as live:
        while time.monotonic() - active <= PATIENCE_SECONDS:
            shown, running = status()
            live.update(shown, refresh=True)
            active = time.monotonic() if running else active
            time.sleep(2 * POLL_SECONDS)


def seconds_left(cells: Iterable[Cell], estimate: Estimate) -> float:
    """The seconds that training these cells still takes on one worker, without early stopping."""
    seconds = 0.0
    for cell in one_of_each_training(cells):
        if cell.run.training():
            continue
        at = cell.run.progress()
        left = 1 - at.get("step", 0) / at["steps"] if "steps" in at else 1.0
        seconds += left * estimate.seconds(cell)
    return seconds


def print_plan(sweep: Sweep, jobs: int | None) -> None:
    """Print every cell with its status and estimated cost; `jobs` (None: one per core) run at a
    time."""
    estimate, label_of, plan = Estimate(sweep), labels(sweep.cells), sweep.plan()
    table = Table("cell", "", "status", box=None)
    table.add_column("TFLOP", justify="right")
    table.add_column("minutes", justify="right")
    for planned in plan:
        cell = planned.cell
        table.add_row(
            cell.name,
            label_of[cell.name],
            planned.status + (f": {planned.reason}" if planned.reason else ""),
            f"{training_flops(cell) / 1e12:,.3g}",
            f"{estimate.seconds(cell) / 60:,.3g}",
        )
    console().print(table)
    open_cells = sweep.open_cells()
    seconds = seconds_left(open_cells, estimate)
    cores = min(jobs or cpu_count(), cpu_count(), len(one_of_each_training(open_cells)))
    on_cores = ""
    if estimate.device == "cpu" and cores > 1:
        on_cores = f", {duration(seconds / cores)} on {cores} cores"
    print(
        f"{sweep.experiment.name}: {len(plan)} cells: {counts(plan)}; {len(open_cells)} to run, "
        f"about {duration(seconds)} on one worker{on_cores}, without early stopping{more(sweep)} "
        f"({estimate.source})"
    )


def more(sweep: Sweep) -> str:
    return ", more as D climbs" if sweep.frontier else ""


def console() -> Console:
    """A console, of fixed width if the output is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else 160, markup=False, emoji=False)


def duration(seconds: float) -> str:
    """E.g. "40 s", "12 min", "3.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:,.1f} h"
