"""Sample, check and build the tasks' sequences from the command line.

python -m tasks sample lis --size 40 --count 3 --seed 1 --split test
python -m tasks check arithmetic --size 6 lines.txt
python -m tasks build ed --size 6 --train 10000 --test 1000
python -m tasks build-all --scale 0.1
python -m tasks push ed --size 6 --train 10000 --test 1000 repo=me/ed-6      # dry; --upload
python -m tasks locality
"""

from __future__ import annotations

if __name__ == "__main__":
    import quiet_interrupts  # noqa: F401

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tqdm import tqdm

import cli
from common import RunError, UserError, make_folder
from tasks import hub
from tasks.by_name import parse_override, read_config, task_by_name
from tasks.data import MAX_COUNT, DataSets, DataSpec, load_or_build, read_lines
from tasks.generate import SeenPrompts, draw_set
from tasks.locality import locality_table
from tasks.task import FORMATS, SPLITS, Task

BUILT_IN = ("arithmetic", "lis", "ed", "ed_local")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} ({self.prog} --help)")


def sample(args: argparse.Namespace) -> int:
    """Print sequences with distinct prompts, one a line."""
    task = _task(args)
    seen = SeenPrompts(args.count)
    sequences = draw_set(task, args.split, args.count, args.seed, seen)
    for row in range(args.count):
        print(*task.decode(sequences, row).tokens)
    return 0


def check(args: argparse.Namespace) -> int:
    """Judge each line of a file; 1 when any is invalid."""
    task = _task(args, checking=True)
    lines = [
        (number, line.split())
        for number, line in enumerate(read_lines(args.file, streams=True), start=1)
        if line.strip()
    ]
    if not lines:
        raise UserError(f"{args.file}: holds no sequence")
    invalid = 0
    for number, tokens in tqdm(lines, unit="line", leave=False, disable=None):
        reason = task.check(tokens)
        if reason is not None:
            invalid += 1
            print(f"line {number}: {reason}")
    print(f"{len(lines)} lines, {len(lines) - invalid} valid, {invalid} invalid")
    return 1 if invalid else 0


def build(args: argparse.Namespace) -> int:
    """Make the stored data set, or find it."""
    spec = DataSpec(args.train, args.validation, args.test, args.seed, args.dir)
    task = _task(args)
    make_folder(Path(args.dir), "--dir")
    sets = load_or_build(task, spec, args.workers)
    print(f"path         {sets.path}")
    print(f"fingerprint  {sets.fingerprint}")
    print(f"samples/s    {_speed(sets)}")
    return 0


def push(args: argparse.Namespace) -> int:
    """Show what would be published on the Hugging Face Hub; with --upload, publish it."""
    hub.require_repo_name(args.repo)
    task = _task(args)
    spec = DataSpec(args.train, args.validation, args.test, args.seed, args.dir)
    make_folder(Path(args.dir), "--dir")
    sets = load_or_build(task, spec, args.workers)
    with tempfile.TemporaryDirectory() as folder:
        staged = Path(folder) / "staged"
        for path in hub.stage(task, sets.path, args.repo, staged):
            print(f"{path.stat().st_size:>14,} B  {path.relative_to(staged)}")
        if args.upload:
            print(f"published    {hub.upload(staged, args.repo, args.private)}")
        else:
            print(f"dry run: nothing was uploaded; --upload publishes it as {args.repo}")
    return 0


def build_all(args: argparse.Namespace) -> int:
    """Make the paper's data sets: every built-in task, every size."""
    counts = read_config("data", "paper", args.config_dir)
    sizes = {key: round(counts[key] * args.scale) for key in SPLITS}
    spec = DataSpec(**sizes, seed=args.seed, directory=args.dir)
    tasks = _paper_tasks(BUILT_IN, None, args.config_dir)
    make_folder(Path(args.dir), "--dir")
    bar = tqdm(tasks, unit="set", disable=None)
    for task in bar:
        bar.set_description(f"{task.name}-{task.size}")
        sets = load_or_build(task, spec, args.workers)
        line = (
            f"{task.name:<12} {task.size:>4}  {sets.path}  {sets.fingerprint[:16]}  {_speed(sets)}"
        )
        tqdm.write(line, file=sys.stdout)
        del sets  # before the next one is made
    return 0


def locality(args: argparse.Namespace) -> int:
    """Print how far tokens lie from what they need, and what sparse attention sees of ED."""
    names = args.task or BUILT_IN
    for line in locality_table(
        _paper_tasks(names, args.size, args.config_dir), args.count, args.seed
    ):
        print(line)
    return 0


def _speed(sets: DataSets) -> str:
    speed = sets.samples_per_second
    return "already there" if speed is None else f"{speed:,.0f}"


def _task(args: argparse.Namespace, checking: bool = False) -> Task:
    given: dict[str, Any] = dict(args.overrides)
    if args.size is not None:
        given["size"] = args.size
    if args.format is not None:
        given["format"] = args.format
    return task_by_name(args.task, given, args.config_dir, checking)


def _paper_tasks(names: Any, sizes: list[int] | None, config_dir: str | None) -> list[Task]:
    tasks = []
    for name in names:
        default = task_by_name(name, {}, config_dir)
        for size in sizes or default.paper_sizes or [default.size]:
            tasks.append(task_by_name(name, {"size": size}, config_dir))
    return tasks


def _whole(least: int, most: int, reason: str) -> Callable[[str], int]:
    """Return a reader of whole numbers from ``least`` to ``most``, the bound for ``reason``."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a whole number from {least} to {most:,}: {reason}"
            )
        return int(text)

    return read


SEEDS = _whole(0, 2**63 - 1, "seeds have 63 bits")
SEQUENCES = _whole(0, MAX_COUNT, "a data set is held in memory")


def _share(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and up to 1")


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = _Parser(
        prog="python -m tasks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = top.add_subparsers(dest="command", required=True, parser_class=_Parser)
    for add in (_add_sample, _add_check, _add_build, _add_push, _add_build_all, _add_locality):
        add(commands)
    return top


def _add_sample(commands: Any) -> None:
    one = _of_one_task(commands, sample, "sample")
    one.add_argument("--seed", type=SEEDS, default=0)
    one.add_argument("--count", type=SEQUENCES, default=10)
    one.add_argument("--split", choices=SPLITS, default="train")


def _add_check(commands: Any) -> None:
    one = _of_one_task(commands, check, "check")
    one.add_argument("file", metavar="FILE", help="a text file, or /dev/stdin")


def _add_build(commands: Any) -> None:
    one = _of_one_task(commands, build, "build")
    _add_counts(one)
    _add_storing(one)


def _add_push(commands: Any) -> None:
    one = _of_one_task(commands, push, "push")
    _add_counts(one)
    one.add_argument("--repo", required=True, metavar="NAME", help="also repo=NAME")
    one.add_argument("--upload", action="store_true", help="without it, a dry run")
    one.add_argument("--private", action="store_true")
    _add_storing(one)


def _add_build_all(commands: Any) -> None:
    every = _command(commands, build_all, "build-all")
    every.add_argument("--scale", type=_share, default=1.0, help="share of the paper's numbers")
    _add_storing(every)


def _add_locality(commands: Any) -> None:
    some = _command(commands, locality, "locality")
    some.add_argument("task", nargs="*", metavar="TASK")
    some.add_argument("--size", type=int, action="append")
    some.add_argument("--seed", type=SEEDS, default=0)
    examined = _whole(1, 100_000, "each sequence is looked through token by token")
    some.add_argument("--count", type=examined, default=20)


def _command(commands: Any, function: Any, name: str) -> argparse.ArgumentParser:
    sub = commands.add_parser(name, help=function.__doc__, allow_abbrev=False)
    sub.set_defaults(function=function, one_task=False)
    sub.add_argument("--config-dir", help="a folder with task/NAME.yaml, searched first")
    return sub


def _of_one_task(commands: Any, function: Any, name: str) -> argparse.ArgumentParser:
    sub = _command(commands, function, name)
    sub.set_defaults(one_task=True)
    sub.add_argument("task", metavar="TASK", help="NAME of conf/task/NAME.yaml, or a dotted path")
    sub.add_argument("--size", type=int)
    sub.add_argument("--format", choices=FORMATS)
    return sub


def _add_counts(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--train", type=SEQUENCES, required=True)
    sub.add_argument("--validation", type=SEQUENCES, default=0)
    sub.add_argument("--test", type=SEQUENCES, required=True)


def _add_storing(sub: argparse.ArgumentParser) -> None:
    """Add what a command that draws and keeps data sets takes."""
    sub.add_argument("--seed", type=SEEDS, default=0)
    sub.add_argument("--dir", default="data")
    workers = _whole(1, 1024, "each is a thread")
    sub.add_argument("--workers", type=workers, default=len(os.sched_getaffinity(0)))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; ``key=value`` may stand anywhere and goes to ``overrides``."""
    argv = [f"--{word}" if word.startswith("repo=") else word for word in argv]
    overrides = [word for word in argv if "=" in word and not word.startswith("-")]
    args, unknown = parser().parse_known_args([word for word in argv if word not in overrides])
    if unknown:
        raise UserError(f"unknown argument {unknown[0]!r} (python -m tasks {args.command} --help)")
    if overrides and not args.one_task:
        raise UserError(f"{args.command} takes no key=value, but got {overrides[0]!r}")
    args.overrides = [parse_override(word) for word in overrides]
    return args


def run(words: Sequence[str]) -> None:
    """Run one command; raise `SystemExit` with its status where that is not 0."""
    args = parse(words)
    try:
        status = args.function(args)
    except MemoryError:
        raise RunError("out of memory; ask for fewer sequences or a smaller size") from None
    if status:
        sys.stdout.flush()
        sys.exit(status)


def main(words: Sequence[str] | None = None) -> None:
    """Entry point: 0 done, 1 invalid lines or a failed run, 2 a bad call."""
    given = sys.argv[1:] if words is None else words  # before options are moved for Hydra
    cli.main(lambda: run(given), left="nothing half-built is left")


if __name__ == "__main__":
    main()
