"""Sample, check and build sequences from the command line.

python -m tasks sample lis --size 40 --count 3 --seed 1 --split test
python -m tasks check arithmetic --size 6 lines.txt
python -m tasks build ed --size 6 --train 10000 --test 1000
python -m tasks push ed --size 6 --train 10000 --test 1000 --repo me/ed-6    # dry run; --upload
python -m tasks gate mqar --size 8 format=tagged
"""

import argparse
import re
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tqdm import tqdm

from common import UserError, checked, compose_plain, run_command
from tasks.data import DataConfig, DataSets, load_or_build, numbered_lines
from tasks.sampling import draw_set
from tasks.task import FORMATS, SPLITS, Task, build_task


def sample(args: Namespace) -> int:
    """Print sequences with distinct prompts, one per line."""
    task = named_task(args)
    data_config(args, train=args.count)
    sequences = draw_set(task, args.split, args.count, args.seed)
    for row in range(args.count):
        print(*task.decode(sequences, row).tokens)
    return 0


def check(args: Namespace) -> int:
    """Check each line of a file; 1 if any is invalid."""
    task = named_task(args)
    given = {word.partition("=")[0] for word in args.overrides}
    task = task.with_parameters(**{k: v for k, v in task.check_defaults.items() if k not in given})
    lines = numbered_lines(args.file)
    invalid = 0
    for number, tokens in tqdm(lines, unit="line", leave=False, disable=None):
        if reason := task.check(tokens):
            invalid += 1
            print(f"line {number}: {reason}")
    print(f"{len(lines)} lines, {len(lines) - invalid} valid, {invalid} invalid")
    return 1 if invalid else 0


def build(args: Namespace) -> int:
    """Build a data set, unless it is stored."""
    sets, speed = data_sets(args, named_task(args))
    print(f"path         {sets.path}\nfingerprint  {sets.fingerprint}\nsamples/s    {speed}")
    return 0


def push(args: Namespace) -> int:
    """Publish a data set on the Hugging Face Hub; a dry run without --upload."""
    import datasets
    import huggingface_hub

    sets, _ = data_sets(args, named_task(args))
    published = datasets.DatasetDict()
    for split in SPLITS:
        if len(sequences := getattr(sets, split)):
            published[split] = datasets.Dataset.from_dict(sequences.arrays)
    print(published)
    if not args.upload:
        print(f"dry run: nothing was uploaded; --upload publishes it as {args.repo}")
        return 0
    published.push_to_hub(args.repo, private=args.private)
    done = huggingface_hub.HfApi().upload_folder(  # vocabulary.json and meta.json
        repo_id=args.repo, repo_type="dataset", folder_path=sets.path, allow_patterns="*.json"
    )
    print(f"published    {done}")
    return 0


def gate(args: Namespace) -> int:
    """Run guessing baselines; exit status 1 if one is too accurate."""
    import torch

    from tasks.gate import MARGIN
    from tasks.gate import gate as accuracies

    torch.set_num_threads(1)
    data_config(args, train=args.count)
    found = accuracies(named_task(args), args.count, args.seed)
    chance = found["majority"]
    print(f"{'baseline':<24} accuracy   chance")
    for name, accuracy in found.items():
        print(f"{name:<24} {accuracy:>8.1%} {chance:>8.1%}")
    passed = max(found.values()) <= chance + MARGIN
    verdict = f"{'passes: no' if passed else 'fails: a'} baseline is more than"
    print(f"{verdict} {100 * MARGIN:g} points above chance")
    return 0 if passed else 1


def data_sets(args: Namespace, task: Task) -> tuple[DataSets, str]:
    """The sets, and their samples/s if they were built."""
    config = data_config(args, **{split: getattr(args, split) for split in SPLITS})
    sets = load_or_build(task, config, Path(args.dir))
    speed = sets.samples_per_second
    return sets, "already there" if speed is None else f"{speed:,.0f}"


def data_config(args: Namespace, **counts: int) -> DataConfig:
    """UserError for a bad count or seed."""
    none = dict.fromkeys(SPLITS, 0)
    return checked(DataConfig, {**none, **counts, "seed": args.seed})


def named_task(args: Namespace) -> Task:
    """The task that train.py builds from `task=TASK`, or one by its dotted path."""
    choice = f"++task._target_={args.task}" if "." in args.task else f"+task={args.task}"
    for key in ("size", "format"):
        if (value := getattr(args, key)) is not None:
            args.overrides.append(f"{key}={value}")
    words = [f"++task.{word}" for word in args.overrides]
    return build_task(compose_plain(None, [choice, *words], args.config_dir)["task"])


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


class Parser(argparse.ArgumentParser):
    """One line for an error."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} ({self.prog} --help)")


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="python -m tasks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = top.add_subparsers(dest="command", required=True, parser_class=Parser)
    one, seed, sets = (argparse.ArgumentParser(add_help=False) for _ in range(3))
    one.add_argument("task", metavar="TASK", help="task name, or a dotted path to a class")
    one.add_argument("--size", type=int)
    one.add_argument("--format", choices=FORMATS)
    own = "conf" if Path("conf").is_dir() else None
    one.add_argument("--config-dir", default=own, help="a folder that holds task/NAME.yaml")
    seed.add_argument("--seed", type=int, default=0)
    sets.add_argument("--train", type=int, required=True)
    sets.add_argument("--validation", type=int, default=0)
    sets.add_argument("--test", type=int, required=True)
    sets.add_argument("--dir", default="data")

    def add(function: Callable[[Namespace], int], *parents: Any) -> argparse.ArgumentParser:
        own = commands.add_parser(
            function.__name__, help=function.__doc__, parents=parents, allow_abbrev=False,
            epilog="key=value sets a parameter of the task",
        )  # fmt: skip
        own.set_defaults(function=function)
        return own

    sampled = add(sample, one, seed)
    sampled.add_argument("--count", type=positive, default=10)
    sampled.add_argument("--split", choices=SPLITS, default="train")
    add(check, one).add_argument("file", metavar="FILE", help="a text file, or /dev/stdin")
    add(build, one, seed, sets)
    pushed = add(push, one, seed, sets)
    pushed.add_argument("--repo", required=True, metavar="NAME")
    pushed.add_argument("--upload", action="store_true", help="without it, a dry run")
    pushed.add_argument("--private", action="store_true")
    add(gate, one, seed).add_argument("--count", type=positive, default=20_000)
    return top


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; `key=value` sets a parameter of the task. Exit status: 0 done, 1 invalid
    lines, gate or run, 2 bad arguments."""
    words = sys.argv[1:] if words is None else words
    overrides = [word for word in words if re.match(r"[\w.]+=", word)]
    args = parser().parse_args([word for word in words if word not in overrides])
    args.overrides = [word.removeprefix("task.") for word in overrides]
    return int(args.function(args))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `sample ... | head` ends quietly
    run_command(lambda: sys.exit(main()))
