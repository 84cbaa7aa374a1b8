"""Data sets: built once, stored, loaded.

A stored set is a folder: `SPLIT-ARRAY.npy` for the arrays of `SequenceSet`, `vocabulary.json` with
tokens in id order, `meta.json` with the settings and the fingerprint.
"""

import contextlib
import hashlib
import io
import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pydantic
from filelock import FileLock

from common import STRICT, UserError, sha256_of, write_bytes, write_json, write_text
from tasks.sampling import SeenPrompts, draw_sets
from tasks.sequences import SequenceSet
from tasks.sources import sources
from tasks.task import SPLITS, Task

DRAW_ORDER = ("test", "validation", "train")  # the test set does not depend on the others

Count = Annotated[int, pydantic.Field(ge=0, le=10**9)]  # a set is held in memory
Seed = Annotated[int, pydantic.Field(ge=0, lt=2**63)]


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class DataConfig:
    """The `data` group: numbers of sequences, the data seed, and optional files.

    `file` and `train_file`, in CoT_benchmark's text format, replace the test and the training set.
    Test prompts are excluded from training, so `test` and `file` affect it too.
    """

    train: Count
    validation: Count
    test: Count
    seed: Seed = 0
    file: str | None = None
    train_file: str | None = None


@dataclass
class DataSets:
    """The three splits; `samples_per_second` is None if they were loaded."""

    train: SequenceSet
    validation: SequenceSet
    test: SequenceSet
    fingerprint: str
    path: Path
    samples_per_second: float | None


def load_or_build(task: Task, config: DataConfig, folder: Path, progress: bool = True) -> DataSets:
    """Load the sets of `task` from `folder`, or build and store them.

    Prompts are distinct within and across splits. The test set is drawn first, so it does not
    depend on the number of validation and training sequences. Two processes that need
    the same sets build them once. UserError for a bad file or too few distinct prompts.
    """
    path = folder / data_key(task, config)
    speed = None
    stored = _load(path)
    if stored is None:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{path.name}.lock"):
            stored = _load(path)  # built by another process meanwhile
            if stored is None:
                task.draw(config.seed, 0, 0, 1)  # compile before the clock starts
                begun = time.perf_counter()
                sets = build(task, config, progress)
                seconds = time.perf_counter() - begun
                speed = sum(map(len, sets.values())) / max(seconds, 1e-9)
                stored = sets, _save(path, task, config, sets)
    sets, content = stored
    return DataSets(**sets, fingerprint=content, path=path, samples_per_second=speed)


def build(task: Task, config: DataConfig, progress: bool = True) -> dict[str, SequenceSet]:
    """Draw (or read) test, validation and training set."""
    counts = {split: getattr(config, split) for split in DRAW_ORDER}
    files = {"test": config.file, "train": config.train_file}
    sets = {split: load_file(task, path) for split, path in files.items() if path}
    seen = SeenPrompts(sum(counts.values()) + sum(map(len, sets.values())))
    if config.file:
        _warn(config.file, ~seen.add(sets["test"]), "appear earlier in the file; they still count")
    drawn = {split: count for split, count in counts.items() if split not in sets}
    found = draw_sets(task, drawn, config.seed, seen, progress)
    if config.train_file:
        new = seen.add(sets["train"])
        _warn(config.train_file, ~new, "are left out: they appear earlier or in another set")
        sets["train"] = sets["train"].select(new)
    return {**sets, **found}


def data_key(task: Task, config: DataConfig) -> str:
    """Folder name of these sets: a hash of all that determines their content, including the source
    of a task from outside the repository."""
    source = None
    if not type(task).__module__.startswith("tasks."):
        with contextlib.suppress(OSError, TypeError):  # a task from a notebook has no file
            source = sources(type(task))
    content = {
        "version": task.generator_version,
        "class": f"{type(task).__module__}.{type(task).__qualname__}",
        "source": source,
        "parameters": task.parameters,
        "counts": [getattr(config, split) for split in DRAW_ORDER],
        "seed": config.seed,
        "files": [path and sha256_of(path) for path in (config.file, config.train_file)],
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return f"{task.name}-{task.size}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def fingerprint(sets: dict[str, SequenceSet]) -> str:
    """SHA-256 over names, shapes, types and bytes."""
    digest = hashlib.sha256()
    for split in SPLITS:
        for name, array in sets[split].arrays.items():
            digest.update(f"{split} {name} {array.shape} {array.dtype.str}".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _save(path: Path, task: Task, config: DataConfig, sets: dict[str, SequenceSet]) -> str:
    """Write aside and rename to `path`, whose lock is held; returns the fingerprint."""
    content = fingerprint(sets)
    meta = {
        "task": task.name,
        "parameters": task.parameters,
        "data": asdict(config),
        "sequences": {split: len(sets[split]) for split in SPLITS},
        "fingerprint": content,
    }
    aside = path.with_name(f".{path.name}.building")
    shutil.rmtree(aside, ignore_errors=True)  # left by a kill
    aside.mkdir()
    try:
        for split in SPLITS:
            for name, array in sets[split].arrays.items():
                buffer = io.BytesIO()
                np.save(buffer, array)
                write_bytes(aside / f"{split}-{name}.npy", buffer.getbuffer())
        write_json(aside / "vocabulary.json", task.vocabulary.tokens)
        write_text(aside / "meta.json", json.dumps(meta, indent=2, default=str) + "\n")
        aside.rename(path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return content


def _load(path: Path) -> tuple[dict[str, SequenceSet], str] | None:
    """Read a stored folder; None if there is none."""
    if not path.is_dir():
        return None
    sets = {}
    for split in SPLITS:
        files = {file.stem.removeprefix(f"{split}-"): file for file in path.glob(f"{split}-*")}
        sets[split] = SequenceSet(**{name: np.load(file) for name, file in files.items()})
    return sets, json.loads((path / "meta.json").read_text())["fingerprint"]


# Sequences to measure a model with


def load_measured(task: Task, path: str, trained_on: SequenceSet) -> SequenceSet:
    """`load_file`, with a warning for prompts that occur twice or in `trained_on`."""
    sequences = load_file(task, path)
    seen = SeenPrompts(len(trained_on) + len(sequences))
    seen.add(trained_on)
    _warn(path, ~seen.add(sequences), "occur twice or in the training set; they still count")
    return sequences


def load_file(task: Task, path: str) -> SequenceSet:
    """Read CoT_benchmark's text format, a sequence per line. Checked with the task's
    `check_defaults` (Arithmetic: any legal order); UserError names file, line and reason."""
    lenient = task.with_parameters(**task.check_defaults)
    examples = []
    for number, tokens in numbered_lines(path):
        reason = lenient.check(tokens)
        if reason is not None:
            raise UserError(f"{path}, line {number}: {reason}")
        examples.append(lenient.parse(tokens))
    return task.encode(examples)


def numbered_lines(path: str) -> list[tuple[int, list[str]]]:
    """Line numbers and tokens of the lines that are not empty; UserError if there are none."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read ({reason})") from None
    found = [(number, line.split()) for number, line in enumerate(lines, start=1) if line.strip()]
    if not found:
        raise UserError(f"{path}: contains no sequences")
    return found


def _warn(path: str, repeated: np.ndarray, how: str) -> None:
    if repeated.any():
        print(f"warning: {path}: {repeated.sum():,} prompts {how}", file=sys.stderr)
