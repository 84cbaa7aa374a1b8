"""Run the cells of a plan, several side by side on one GPU, for some minutes.

    python -m benchmarks.gpu.cells --plan table2.json --out out/1 --jobs 6
    python -m benchmarks.gpu.cells --plan table2.json --out out/2 --from out/1 --jobs 6

Each cell is a process. Near the end of --minutes every running cell writes its checkpoint and is
recorded as unfinished; --out then holds all records and as many checkpoints as --checkpoint-mb
allows, in parts of --part-mb. On the same machine --runs-dir keeps the rest: give it again.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.parcel import header_of, pack, unpack, write_records
from benchmarks.gpu.shared import Clock, call, parser, print_table, read_json
from errors import RunError, UserError
from experiments.cell import run_cell
from experiments.grid import describe
from experiments.identity import cell_name
from experiments.objects import build_task
from experiments.provenance import now, source
from experiments.schema import CellConfig, DataConfig, LoggerConfig, ModelConfig
from experiments.store import Run
from training.recipe import Recipe
from training.trainer import Interrupted

# Of the minutes, what is kept for checkpoints and packing, and what a start must leave for work.
RESERVE_SECONDS = 45.0
SHORTEST_START = 30.0
GRACE_SECONDS = 15.0


def main(argv: Sequence[str] | None = None) -> None:
    """Run cells, pack them, print how each of them stands."""
    options = arguments(argv)
    clock = Clock(options.minutes)
    content = read_json(options.plan)
    header = header_of(content)
    for folder in options.given:
        unpack(folder, options.runs_dir)
    planned = [with_settings(cell, options) for cell in content["cells"]]
    runs = [Run.of(config) for config in planned]
    selected = [config for config in planned if chosen(config, options.only)]
    run_side_by_side(selected, options, clock, lambda: write_records(options.out, header, runs))
    left_behind = pack(options.out, header, runs, options.checkpoint_mb, options.part_mb)
    print_standing(selected, left_behind)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    result = parser(__doc__, "cells")
    add = result.add_argument
    add("--plan", type=Path, required=True, help="what benchmarks.gpu.plan wrote")
    add("--jobs", type=int, default=6, help="cells side by side")
    add("--only", nargs="*", default=[], metavar="COLUMN=VALUE", help="run: model=linear dim=64")
    add("--runs-dir", type=Path, default=Path("runs"))
    add("--data-dir", type=Path, default=Path("data"))
    add("--evaluation-memory-mb", type=float, help="of each cell; default: its share of the GPU")
    add("--checkpoint-mb", type=float, default=45, help="of checkpoints in --out")
    add("--part-mb", type=float, default=15)
    add(
        "--compile", nargs="?", choices=["true", "graphs"], const="true",
        help="torch.compile, a minute for each process; graphs: CUDA graphs too",
    )  # fmt: skip
    add("--micro-batch-size", type=int, help="sequences of a batch held at a time; default: all")
    add("--retry-failed", action="store_true")
    options = result.parse_args(argv)
    if options.jobs < 1:
        raise UserError(f"--jobs {options.jobs}: must be at least 1")
    for word in options.only:
        if "=" not in word:
            raise UserError(f"--only {word}: must be COLUMN=VALUE")
    return options


def with_settings(cell: dict[str, Any], options: argparse.Namespace) -> CellConfig:
    """Return a planned cell's configuration with this machine's settings.

    `UserError` when its name is not that of its configuration: the plan is of other code.
    """
    config = dataclasses.replace(
        config_from(cell["config"]),
        logger=LoggerConfig("disabled"),
        runs_dir=str(options.runs_dir),
        data_dir=str(options.data_dir),
        device=str(options.device),
        compile={None: False, "true": True, "graphs": "graphs"}[options.compile],
        micro_batch_size=options.micro_batch_size,
        threads=max(1, (os.cpu_count() or 1) // options.jobs),
        evaluation_memory_mb=options.evaluation_memory_mb or memory_share(options),
        retry_failed=True,
        progress=False,
        under_sweep=True,
    )
    if cell_name(config) != cell["name"]:
        raise UserError(
            f"plan: cell {cell['name']} is {cell_name(config)} in this version; plan anew"
        )
    return config


def config_from(plain: dict[str, Any]) -> CellConfig:
    """Return the configuration that ``dataclasses.asdict`` has made plain."""
    try:
        return CellConfig(
            **{
                **plain,
                "model": ModelConfig(**plain["model"]),
                "recipe": Recipe(**plain["recipe"]),
                "data": DataConfig(**plain["data"]),
                "logger": LoggerConfig(**plain["logger"]),
            }
        )
    except (TypeError, KeyError) as error:
        raise UserError(f"plan: not a cell of this version ({error}); plan anew") from None


def memory_share(options: argparse.Namespace) -> float:
    """Return the megabytes that one cell's evaluation may hold: half its share of the GPU."""
    if options.device.type != "cuda":
        return 1024.0
    total = torch.cuda.get_device_properties(options.device).total_memory
    return total / 2**20 / options.jobs / 2


def chosen(config: CellConfig, only: Sequence[str]) -> bool:
    """Tell whether the cell has every value that ``only`` asks for."""
    described = describe(config)
    wanted = (word.split("=", 1) for word in only)
    return all(str(described.get(column)) in values.split(",") for column, values in wanted)


def run_side_by_side(
    selected: Sequence[CellConfig],
    options: argparse.Namespace,
    clock: Clock,
    after_each: Callable[[], None],
) -> None:
    """Keep ``--jobs`` cells running until all are done or the time is up."""
    reserve = min(RESERVE_SECONDS, clock.left() / 4)
    deadline = time.time() + clock.left() - reserve
    waiting = [config for config in selected if _is_open(config, options.retry_failed)]
    running: dict[str, tuple[CellConfig, Any]] = {}
    context = multiprocessing.get_context("spawn")
    while running or (waiting and _time_to_start(deadline, reserve)):
        while waiting and len(running) < options.jobs and _time_to_start(deadline, reserve):
            config = waiting.pop(0)
            process = context.Process(target=work, args=(dataclasses.asdict(config), deadline))
            process.start()
            running[cell_name(config)] = (config, process)
        time.sleep(0.2)
        _stop_late(running, deadline)
        for name, (config, process) in list(running.items()):
            if not process.is_alive():
                del running[name]
                _record_death(config, process.exitcode, deadline)
                print(standing_line(config), flush=True)
                after_each()


def _is_open(config: CellConfig, retry_failed: bool) -> bool:
    record = Run.of(config).record()
    settled = ("done",) if retry_failed else ("done", "failed")
    return record is None or record["status"] not in settled


def _time_to_start(deadline: float, reserve: float) -> bool:
    return deadline - time.time() > min(SHORTEST_START, reserve)


def _stop_late(running: dict[str, tuple[CellConfig, Any]], deadline: float) -> None:
    """Tell processes that overstay to stop; kill them when they do not."""
    late = time.time() - deadline
    for _, process in running.values():
        if late > 2 * GRACE_SECONDS:
            process.kill()
        elif late > GRACE_SECONDS:
            process.terminate()


def work(plain: dict[str, Any], deadline: float) -> None:
    """Run one cell in this process until ``deadline`` (seconds since the epoch)."""
    config = config_from(plain)
    config = dataclasses.replace(config, time_limit_seconds=max(1.0, deadline - time.time()))
    run = Run.of(config)
    before = run.stamp()

    def leave_in_time(values: dict[str, Any]) -> None:
        # Training checkpoints before it stops, and looks at the time itself.
        if values.get("phase") == "evaluation" and time.time() > deadline:
            raise Interrupted

    try:
        run_cell(config, leave_in_time)
    except (RunError, UserError) as error:
        print(f"cell {run.cell}: {error}", flush=True)
        if run.stamp() == before:  # not the cell's own record, which says more
            _record(config, "failed", str(error))


def _record_death(config: CellConfig, exit_code: int | None, deadline: float) -> None:
    """Record a cell whose process ended without a word.

    Stopped by us at the end of the time it is unfinished, whatever else it is failed: before that
    time, killed as well. One that ended by itself has its record, or another process has the cell.
    """
    if exit_code == 0:
        return
    if exit_code in (-15, -9) and time.time() > deadline + GRACE_SECONDS:
        _record(config, "unfinished", "stopped at the end of the time")
    else:
        _record(config, "failed", f"its process died ({exit_code})")


def _record(config: CellConfig, status: str, reason: str) -> None:
    """Record from outside how a cell stands, unless it is done."""
    run = Run.of(config)
    record = run.record()
    if record is not None and record["status"] == "done":
        return
    run.write_record(
        {
            **describe(config),
            "max_len": build_task(config.task).max_len,
            "cell": run.cell,
            **source(),
            "status": status,
            "reason": reason,
            "finished_at": now(),
        }
    )


def standing_line(config: CellConfig) -> str:
    """Return one line on how a cell stands."""
    return "  ".join("" if value is None else str(value) for value in _standing(config))


def _standing(config: CellConfig) -> list[Any]:
    record = Run.of(config).record() or {"status": "missing"}
    described = describe(config)
    columns = ("status", "answer_accuracy", "chain_exact_match", "steps", "train_seconds")
    return [
        cell_name(config),
        *(described[key] for key in ("task", "size", "model", "dim", "recipe")),
        *(record.get(column) for column in columns),
        record.get("reason"),
    ]


def print_standing(planned: Sequence[CellConfig], left_behind: Sequence[str]) -> None:
    """Print how every cell that was begun stands, and how many there are of each status."""
    rows = [_standing(config) for config in planned]
    header = "cell task size model dim recipe status answer chain steps seconds reason".split()
    print_table([row for row in rows if row[6] != "missing"], header)
    counts = {status: sum(row[6] == status for row in rows) for status in {row[6] for row in rows}}
    print(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))
    if left_behind:
        print(f"checkpoints left behind in --runs-dir: {', '.join(left_behind)}")


if __name__ == "__main__":
    call(main)
