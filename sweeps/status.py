"""How a sweep stands, asked from any terminal: done, running, queued, time left."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sweeps import search_cost
from sweeps.cost import CostEstimate, estimate_of, of_weights
from sweeps.frontier import Trials, standing
from sweeps.plan import Planned, Sweep, counts
from sweeps.progress import besides
from sweeps.tables import console, duration
from sweeps.watch import running_table

LOOK_SECONDS = 2.0
QUIET_SECONDS = 60.0  # between two cells of a sweep nothing runs for some seconds
OPEN = ("missing", "unfinished", "running", "queued")


def show_status(sweep: Sweep, trials: Sequence[Sequence[Trials]] | None = None) -> None:
    """Print once what is done, running and open, and how long the rest may take.

    With the ``trials`` of a frontier search also what of it is left.
    """
    told, estimate = besides(sweep.cells), estimate_of(sweep)
    console().print(_status(sweep, sweep.plan(), estimate, told))
    if trials is not None:
        print(search_cost.in_words(standing(sweep, trials, sweep.table()), estimate))


def watch(sweep: Sweep) -> None:
    """Show the status again and again until Ctrl-C, or until no cell is open or has run of late."""
    estimate, told, active_at = estimate_of(sweep), besides(sweep.cells), time.monotonic()
    with suppress(KeyboardInterrupt), Live(console=console(), auto_refresh=False) as live:
        while True:
            plan = sweep.plan()
            live.update(_status(sweep, plan, estimate, told), refresh=True)
            found = {planned.status for planned in plan}
            if found & {"running", "queued"}:
                active_at = time.monotonic()
            if not found & set(OPEN) or time.monotonic() - active_at > QUIET_SECONDS:
                return
            time.sleep(LOOK_SECONDS)


def _status(
    sweep: Sweep, plan: Sequence[Planned], estimate: CostEstimate, told: Mapping[str, str]
) -> Group:
    running = [planned for planned in plan if planned.status == "running"]
    parts: list[Table | Text] = []
    if running:
        parts.append(running_table(sweep.experiment.name, running, told))
    text = f"{sweep.experiment.name}: {len(plan)} cells: {counts(plan)}"
    left = seconds_left(plan, estimate)
    if left:
        workers = max(1, len(running))
        text += f"; at most {duration(left / workers)} left on {workers} at a time"
        text += f" ({estimate.source})"
    return Group(*parts, Text(text))


def seconds_left(plan: Sequence[Planned], estimate: CostEstimate) -> float:
    """Return the worker seconds that the open cells' budgets would take; early stops end sooner."""
    open_cells = [p for p in plan if p.status in OPEN]
    whole = {cell.name: estimate.seconds(cell) for cell in of_weights(p.cell for p in open_cells)}
    for planned in open_cells:
        progress = planned.folder.progress() or {}
        if planned.cell.name in whole and progress.get("steps"):
            whole[planned.cell.name] *= 1 - progress.get("step", 0) / progress["steps"]
    return sum(whole.values())
