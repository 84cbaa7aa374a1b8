"""Data sets of a task: built once, stored, verified at load, handed over as arrays."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from common import UserError, file_digest, read_regular
from tasks import card, store
from tasks.generate import STREAMS, SeenPrompts, draw_block, draw_set
from tasks.task import SPLITS, Example, SequenceSet, Task

# Raise it whenever a change makes other sequences of the same seed; old sets are then not used.
GENERATOR_VERSION = 3
MAX_COUNT = 1_000_000_000
DRAWN = tuple(reversed(SPLITS))  # in this order: the test set is the same whatever the others are
_LOOKED_AT = 4000


@dataclass(frozen=True)
class DataSpec:
    """How many sequences of which seed, and where they are kept.

    ``file`` and ``train_file`` name files in the text format of CoT_benchmark (Feng et al.
    2023) that stand in for the test and the training set.
    """

    train: int
    validation: int
    test: int
    seed: int = 0
    directory: str = "data"
    file: str | None = None
    train_file: str | None = None

    def __post_init__(self) -> None:
        for key in SPLITS:
            if not 0 <= getattr(self, key) <= MAX_COUNT:
                raise UserError(
                    f"data.{key}={getattr(self, key)} must be from 0 to {MAX_COUNT:,}: a data set "
                    "is held in memory"
                )
        if not 0 <= self.seed < 2**63:
            raise UserError(f"data.seed={self.seed} must be in [0, 2^63)")


@dataclass
class DataSets:
    """The three sets; ``samples_per_second`` is None when they were already there."""

    train: SequenceSet
    validation: SequenceSet
    test: SequenceSet
    fingerprint: str
    path: Path
    samples_per_second: float | None


def load_or_build(task: Task, spec: DataSpec, workers: int = 1, progress: bool = True) -> DataSets:
    """Return the sets of ``task``, from the store where they are intact, else built and stored.

    Prompts are distinct inside and across the sets.  The test set is drawn first, so that it is
    the same whatever the numbers of validation and training sequences, 0 included.  Two
    processes that need the same sets build them once.  Raises `UserError` for a bad file or too
    few distinct prompts, `RunError` when the disk is full.
    """
    path = Path(spec.directory) / data_key(task, spec)
    speeds: list[float] = []

    def make() -> dict[str, SequenceSet]:
        sets, speed = build(task, spec, workers, progress)
        speeds.append(speed)
        return sets

    about = {"task": task.name, "parameters": task.parameters, "spec": asdict(spec)}
    width = (1 + task.labelled) * (task.max_len + 1) * task.vocabulary.dtype.itemsize + 8
    expected_bytes = width * (spec.train + spec.validation + spec.test)
    beside = functools.partial(card.beside, task)
    sets, fingerprint = store.load_or_make(path, make, about, expected_bytes, beside)
    if spec.file and not speeds:
        new = SeenPrompts(len(sets["test"])).add(sets["test"])
        _warn_measured(spec.file, new, "stand in it before")
    return DataSets(
        **sets,
        fingerprint=fingerprint,
        path=path,
        samples_per_second=speeds[-1] if speeds else None,
    )


def build(
    task: Task, spec: DataSpec, workers: int = 1, progress: bool = True
) -> tuple[dict[str, SequenceSet], float]:
    """Draw (or read) test, validation and training set, in this order; also samples/s drawn."""
    counts = {split: getattr(spec, split) for split in SPLITS}
    files = {"test": spec.file, "train": spec.train_file}
    sets = {split: load_file(task, path) for split, path in files.items() if path}
    seen = SeenPrompts(sum(counts.values()) + sum(map(len, sets.values())))
    draw_block(task, spec.seed, 0, 0, 1)  # compile before the clock starts
    begun = time.perf_counter()
    drawn = sum(counts[split] for split in SPLITS if split not in sets)
    bar = tqdm(total=drawn, unit="seq", unit_scale=True, disable=None if progress else True)
    with bar:
        for split in DRAWN:
            bar.set_description(f"{task.name}-{task.size} {split}")
            if split not in sets:
                sets[split] = draw_set(
                    task, split, counts[split], spec.seed, seen, workers, bar.update
                )
                continue
            new = seen.add(sets[split])
            if split == "train" and not new.all():
                _warn_repeated(spec.train_file, int(len(new) - new.sum()))
                sets[split] = sets[split].select(new)
            elif not new.all():
                _warn_measured(spec.file, new, "stand in it before")
    return sets, drawn / max(time.perf_counter() - begun, 1e-9)


def require_prompts(task: Task, spec: DataSpec) -> None:
    """Raise `UserError` where ``task`` has too few distinct prompts for ``spec``.

    A few thousand candidates without a repetition come from a set far larger than their square;
    only where repetitions say that it may not suffice are the data sets drawn, and kept.
    """
    wanted = sum(getattr(spec, split) for split in SPLITS)
    if spec.file or spec.train_file or not wanted:
        return
    new = SeenPrompts(_LOOKED_AT).add(draw_block(task, spec.seed, STREAMS["test"], 0, _LOOKED_AT))
    repeated = _LOOKED_AT - int(new.sum())
    if 2 * max(repeated, 1) * 4 * wanted > _LOOKED_AT**2:
        load_or_build(task, spec)


def draw_measured(
    task: Task,
    count: int,
    seed: int,
    exclude: SequenceSet | Iterable[SequenceSet] = (),
    workers: int = 1,
    progress: bool = True,
) -> SequenceSet:
    """Draw ``count`` sequences of ``task`` whose prompts occur in no set of ``exclude``.

    For a model measured at another setting than it was trained at: ``exclude`` holds what it
    trained on, in the token ids of the same vocabulary (sizes and widths may differ).  Prompts are
    distinct, and come from a stream of random numbers of their own.  Raises `UserError` when there
    are too few, or when a set of ``exclude`` has ids of another type.
    """
    excluded = [exclude] if isinstance(exclude, SequenceSet) else list(exclude)
    for sequences in excluded:
        if sequences.tokens.dtype != task.vocabulary.dtype:
            raise UserError(
                f"task {task.name} size={task.size}: ids are {task.vocabulary.dtype}, those of the "
                f"sequences to leave out {sequences.tokens.dtype}: not of the same vocabulary"
            )
    seen = SeenPrompts(count + sum(map(len, excluded)))
    for sequences in excluded:
        seen.add(sequences)
    with tqdm(
        total=count,
        desc=f"{task.name}-{task.size} measure",
        unit="seq",
        unit_scale=True,
        disable=None if progress else True,
    ) as bar:
        return draw_set(task, "measure", count, seed, seen, workers, bar.update)


def load_measured(task: Task, path: str, trained_on: SequenceSet | None = None) -> SequenceSet:
    """Read a file as `load_file` does; say how many of its prompts are twice in it, or in
    ``trained_on``, which holds ids of the same vocabulary."""
    sequences = load_file(task, path)
    new = SeenPrompts(len(sequences)).add(sequences)
    _warn_measured(path, new, "stand in it before")
    if trained_on is not None:
        seen = SeenPrompts(len(trained_on) + len(sequences))
        seen.add(trained_on)
        _warn_measured(path, seen.add(sequences.select(new)), "were trained on")
    return sequences


def load_file(task: Task, path: str) -> SequenceSet:
    """Read sequences in the text format of CoT_benchmark, one a line; empty lines are skipped.

    Every line is parsed and checked with the task's ``check_defaults`` (Arithmetic: any order of
    legal reductions).  `UserError` names file, line and reason.
    """
    lenient = task.with_parameters(**task.check_defaults)
    examples: list[Example] = []
    lines = tqdm(read_lines(path), desc=path, unit="line", leave=False, disable=None)
    for number, line in enumerate(lines, start=1):
        tokens = line.split()
        if not tokens:
            continue
        reason = lenient.check(tokens)
        if reason is not None:
            raise UserError(f"{path}, line {number}: {reason}")
        examples.append(lenient.parse(tokens))
    if not examples:
        raise UserError(f"{path}: holds no sequence")
    return task.encode(examples)


def read_lines(path: str, streams: bool = False) -> list[str]:
    """Return the lines of a text file, without a byte order mark; `UserError` when it cannot be
    read.  With ``streams`` it may be /dev/stdin."""
    try:
        stream = streams and path == "/dev/stdin"
        content = Path(path).read_bytes() if stream else read_regular(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        return content.decode("utf-8").removeprefix("\ufeff").splitlines()
    except UnicodeDecodeError as error:
        read = content[: error.start].decode("utf-8")
        line, byte = len(f"{read}.".splitlines()), content[error.start]
        raise UserError(f"{path}, line {line}: is not text in UTF-8 (byte {byte:#04x})") from None


def data_key(task: Task, spec: DataSpec) -> str:
    """Return the name of the folder of these sets: a hash of all that decides their content."""
    content = {
        "version": GENERATOR_VERSION,
        "class": f"{type(task).__module__}.{type(task).__qualname__}",
        "source": _foreign_source(task),
        "parameters": task.parameters,
        "counts": [getattr(spec, split) for split in DRAWN],
        "seed": spec.seed,
        "files": [path and file_digest(path) for path in (spec.file, spec.train_file)],
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _foreign_source(task: Task) -> str | None:
    """Hash the source of a task from elsewhere, which does not count our GENERATOR_VERSION."""
    if type(task).__module__.split(".")[0] == "tasks":
        return None
    try:
        source = Path(inspect.getfile(type(task))).read_bytes()
    except (OSError, TypeError):
        return None
    return hashlib.sha256(source).hexdigest()


def _warn_repeated(path: str | None, count: int) -> None:
    print(
        f"{path}: {count:,} sequences left out, their prompts occur twice or in the other sets",
        file=sys.stderr,
    )


def _warn_measured(path: str | None, new: np.ndarray, why: str) -> None:
    known = len(new) - int(new.sum())
    if known:
        print(f"warning: {path}: {known:,} prompts {why}, and count all the same", file=sys.stderr)
