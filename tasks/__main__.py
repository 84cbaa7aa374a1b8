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

import pydantic
import yaml
from tqdm import tqdm

from common import CONF_DIR, RunError, UserError, did_you_mean
from tasks.data import DataConfig, DataSets, load_or_build, numbered_lines
from tasks.generate import draw_set
from tasks.task import FORMATS, SPLITS, Task, build_task


def sample(args: Namespace) -> int:
    """Print sequences with distinct prompts, one per line."""
    task = named_task(args)
    DataConfig(train=args.count, validation=0, test=0, seed=args.seed)  # checks count and seed
    sequences = draw_set(task, args.split, args.count, args.seed)
    for row in range(args.count):
        print(*task.decode(sequences, row).tokens)
    return 0


def check(args: Namespace) -> int:
    """Check each line of a file; 1 if any is invalid."""
    task = named_task(args)
    defaults = {k: v for k, v in task.check_defaults.items() if k not in args.overrides}
    task = task.with_parameters(**defaults)
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
    DataConfig(train=args.count, validation=0, test=0, seed=args.seed)  # checks count and seed
    found = accuracies(named_task(args), args.count, args.seed)
    chance = found["majority"]
    print(f"{'baseline':<24} accuracy   chance")
    for name, accuracy in found.items():
        print(f"{name:<24} {accuracy:>8.1%} {chance:>8.1%}")
    passed = max(found.values()) <= chance + MARGIN
    verdict = "passes: at most" if passed else "fails: more than"
    print(f"{verdict} {100 * MARGIN:g} points above chance")
    return 0 if passed else 1


def data_sets(args: Namespace, task: Task) -> tuple[DataSets, str]:
    """The sets, and their samples/s if they were built."""
    config = DataConfig(**{split: getattr(args, split) for split in SPLITS}, seed=args.seed)
    sets = load_or_build(task, config, Path(args.dir))
    speed = sets.samples_per_second
    return sets, "already there" if speed is None else f"{speed:,.0f}"


def read_config(name: str, config_dir: str | None) -> dict[str, Any]:
    """task/NAME.yaml of `config_dir`, ./conf or this repository; Hydra would take two seconds."""
    folders = [CONF_DIR, Path("conf"), Path(config_dir or "conf")]
    if config_dir and not folders[-1].is_dir():
        raise UserError(f"--config-dir {config_dir}: no such folder")
    files = {path.stem: path for folder in folders for path in folder.glob("task/*.yaml")}
    if name not in files:
        known = ", ".join(sorted(files))
        raise UserError(f"no task named {name!r}: there are {known}{did_you_mean(name, files)}")
    try:
        settings = yaml.safe_load(files[name].read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise UserError(f"{files[name]}: {' '.join(str(error).split())}") from None
    if not isinstance(settings, dict) or "defaults" in settings:
        raise UserError(f"{files[name]}: python -m tasks needs all settings, without `defaults`")
    return settings


def named_task(args: Namespace) -> Task:
    name = args.task
    settings = {"_target_": name} if "." in name else read_config(name, args.config_dir)
    return build_task({**settings, **args.overrides})


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
    one.add_argument("--config-dir", help="a folder that holds task/NAME.yaml")
    seed.add_argument("--seed", type=int, default=0)
    sets.add_argument("--train", type=int, required=True)
    sets.add_argument("--validation", type=int, default=0)
    sets.add_argument("--test", type=int, required=True)
    sets.add_argument("--dir", default="data")

    def add(function: Callable[[Namespace], int], *parents: Any) -> argparse.ArgumentParser:
        own = commands.add_parser(
            function.__name__, help=function.__doc__, parents=parents, allow_abbrev=False
        )
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


def parse(words: Sequence[str]) -> Namespace:
    """Parse arguments; `key=value` and options named after task parameters go to `overrides`."""
    overrides = [word for word in words if re.match(r"[\w.]+=", word)]
    args = parser().parse_args([word for word in words if word not in overrides])
    args.overrides = {}
    for word in overrides:
        key, _, value = word.partition("=")
        try:
            args.overrides[key.removeprefix("task.")] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UserError(f"{word}: {error.__class__.__name__}") from None
    for key in ("size", "format"):
        if (given := getattr(args, key, None)) is not None:
            args.overrides[key] = given
    return args


def main(words: Sequence[str] | None = None) -> int:
    """Run one command. Exit status: 0 done, 1 invalid lines or a failed run, 2 bad arguments."""
    try:
        args = parse(sys.argv[1:] if words is None else words)
        return int(args.function(args))
    except pydantic.ValidationError as error:
        wrong = error.errors()[0]
        reason = f"{'.'.join(map(str, wrong['loc']))}={wrong['input']}: {wrong['msg']}"
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (UserError, OSError) as error:
        reason = str(error)
    print(f"error: {reason}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `sample ... | head` ends quietly
    sys.exit(main())
