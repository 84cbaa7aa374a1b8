"""Data sets: distinct prompts, disjoint splits, reproducibility, storage and files."""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from processes import ROOT

from common import RunError, UserError
from tasks import data
from tasks.__main__ import main
from tasks.arithmetic import Arithmetic
from tasks.data import DataConfig, build, data_key, load_file, load_measured
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.lis import LIS
from tasks.sampling import STREAMS, draw_set
from tasks.sequences import SequenceSet
from tasks.task import SPLITS, Task
from tasks.word import Word

SAMPLES = ROOT / "tests" / "oracles" / "samples"
FORK = multiprocessing.get_context("fork")
CONFIG = DataConfig(train=3000, validation=200, test=500)

ALL: list[Task] = [
    Arithmetic(3), LIS(6), EditDistance(4), EditDistanceLocal(4), LIS(6, "tagged"),
    Word(6, "online", "S3", "all"),
]  # fmt: skip
EACH = pytest.mark.parametrize("task", ALL, ids=lambda task: f"{task.name}-{task.format}")


def prompts(sequences: SequenceSet) -> list[bytes]:
    """The model's input: the prompt, or all tokens if there are labels."""
    if sequences.labels is not None:
        return [row.tobytes() for row in sequences.tokens]
    rows = zip(sequences.tokens, sequences.prompt_lengths, strict=True)
    return [row[:length].tobytes() for row, length in rows]


def first_distinct(candidates: SequenceSet, count: int, without: set[bytes] = frozenset()):
    """The first `count` candidates with distinct prompts that are not in `without`."""
    first: dict[bytes, int] = {}
    for index, prompt in enumerate(prompts(candidates)):
        if prompt not in without:
            first.setdefault(prompt, index)
    return candidates.select(list(first.values())[:count])


def assert_same(one: SequenceSet, two: SequenceSet) -> None:
    assert one.arrays.keys() == two.arrays.keys()
    for name, array in one.arrays.items():
        other = two.arrays[name]
        assert array.dtype == other.dtype and np.array_equal(array, other)


@EACH
def test_sets_are_the_first_distinct_candidates_and_disjoint(task: Task, tmp_path: Path) -> None:
    """The test set does not depend on the other splits."""
    whole = build(task, CONFIG, progress=False)
    assert [len(whole[split]) for split in SPLITS] == [3000, 200, 500]
    assert len({prompt for own in whole.values() for prompt in prompts(own)}) == 3700
    assert_same(whole["test"], first_distinct(task.draw(0, 0, 0, 5000), 500))
    held = {prompt for split in ("test", "validation") for prompt in prompts(whole[split])}
    fresh = first_distinct(task.draw(0, STREAMS["train"], 0, 9000), 3000, held)
    own = set(prompts(fresh))  # of the largest size, besides 473 and 1,000 smaller ones
    rows = [i for i, prompt in enumerate(prompts(whole["train"])) if prompt in own]
    assert len(rows) == (1527 if task.name == "arithmetic" else 3000)
    assert_same(whole["train"].select(rows), fresh.select(slice(0, len(rows))))
    alone = get(tmp_path, task, DataConfig(train=0, validation=0, test=500))
    assert_same(alone.test, whole["test"])
    for empty in (alone.train, alone.validation):
        assert empty.tokens.shape == (0, task.max_len + 1)
        assert empty.tokens.dtype == task.vocabulary.dtype


def test_too_few_distinct_prompts_raise_an_error_with_their_number() -> None:
    """There are 473 one-operator expressions."""
    task, reason = Arithmetic(1), "too few distinct prompts: train wants 300, found 273"
    with pytest.raises(UserError, match=reason):
        build(task, DataConfig(train=300, validation=100, test=100), progress=False)
    train = build(task, DataConfig(400, 73, 0), progress=False)["train"]
    assert len(draw_set(task, "measure", 73, 0, [train])) == 73
    reason = "too few distinct prompts outside the given sets: measure wants 74, found 73"
    with pytest.raises(UserError, match=reason):
        draw_set(task, "measure", 74, 0, [train])


def test_kinds_beyond_the_eighth_are_refused(monkeypatch) -> None:
    monkeypatch.setattr(Word, "kinds", lambda self, drawn: np.full(len(drawn), 8))
    with pytest.raises(ValueError, match="returns 8; kinds are 0 to 7"):
        draw_set(Word(6), "test", 10, 0)


def get(folder: Path, task: Task = ALL[0], config: DataConfig = CONFIG) -> data.DataSets:
    return data.load_or_build(task, config, folder, progress=False)


@pytest.mark.parametrize(
    "task", [LIS(130), LIS(6, "tagged"), Word(8, "tagged")], ids=lambda task: task.name
)
def test_loaded_sets_equal_built_sets(task: Task, tmp_path: Path) -> None:
    config = DataConfig(700, 0, 300)
    first = get(tmp_path / "new" / "data", task, config)
    again = get(tmp_path / "new" / "data", task, config)
    assert first.path == again.path == tmp_path / "new" / "data" / data_key(task, config)
    assert first.samples_per_second is not None
    assert again.samples_per_second is None
    assert first.fingerprint == again.fingerprint
    sets = {split: getattr(again, split) for split in SPLITS}
    for split in SPLITS:
        assert_same(getattr(first, split), sets[split])
    if task.labelled:
        sets["test"].labels[0, 2] += 1
        assert data.fingerprint(sets) != first.fingerprint
    vocabulary = json.loads((first.path / "vocabulary.json").read_text())
    assert tuple(vocabulary) == task.vocabulary.tokens


def test_key_depends_on_everything_that_changes_the_data(tmp_path: Path, monkeypatch) -> None:
    one, two = str(tmp_path / "a.txt"), str(tmp_path / "b.txt")
    Path(one).write_text("1 + 2 = 3\n")
    Path(two).write_text("1 + 2 = 3\n" * 2)
    changes = [{}, {"train": 11}, {"validation": 2}, {"seed": 1}, {"file": one}, {"file": two},
               {"train_file": two}]  # fmt: skip
    first, *others = (DataConfig(**{"train": 10, "validation": 1, "test": 1, **c}) for c in changes)
    keys = [data_key(Arithmetic(2), config) for config in (first, *others)]
    keys += [data_key(task, first) for task in (*ALL, Arithmetic(2, order="growth"))]
    Path(one).write_text("2 + 2 = 4\n")
    keys.append(data_key(Arithmetic(2), others[3]))
    monkeypatch.setattr(Arithmetic, "generator_version", Arithmetic.generator_version + 1)
    keys.append(data_key(Arithmetic(2), first))
    assert len(set(keys)) == len(keys)


def test_many_processes_build_a_set_once(tmp_path, monkeypatch) -> None:
    first = get(tmp_path)
    shutil.rmtree(first.path)
    save = np.save
    monkeypatch.setattr(np, "save", lambda *given: save(*given) or time.sleep(0.05))
    with FORK.Pool(4) as pool:
        found = pool.map(get, [tmp_path] * 4)
    assert {sets.fingerprint for sets in found} == {first.fingerprint}
    assert sum(sets.samples_per_second is not None for sets in found) == 1


def test_killed_builder_leaves_no_data_set(tmp_path: Path, monkeypatch) -> None:
    def killed(descriptor):
        if list(tmp_path.glob(".*.building/*.npy")):
            os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", killed)
        builder = FORK.Process(target=get, args=(tmp_path,))
        builder.start()
        builder.join(60)
    assert builder.exitcode == -signal.SIGKILL and list(tmp_path.glob(".*.building/*.npy"))
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    built = get(tmp_path)
    assert built.samples_per_second is not None
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [built.path.name]


def test_full_disk_leaves_no_folder(tmp_path: Path, monkeypatch) -> None:
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="disk is full"):
        get(tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.txt")), ids=lambda path: path.stem)
def test_files_of_cot_benchmark_are_valid_and_load(path: Path, capsys) -> None:
    name, size = path.stem.split("-")
    assert main(["check", name, "--size", size, str(path)]) == 0
    assert capsys.readouterr().out == "10 lines, 10 valid, 0 invalid\n"
    task = next(task for task in ALL if task.name == name).with_parameters(size=int(size))
    loaded = load_file(task, str(path))
    lines = [" ".join(task.decode(loaded, row).tokens) for row in range(10)]
    assert lines == [" ".join(line.split()) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"1 + 2 = 3\n\n1 + 2 = 4\n", "line 3: chain step 1"), (b"", "contains no sequences"),
     (b"\xef\xbb\xbf\n \n", "contains no sequences"), (b"1 + 2 = 3\n\xc3", "cannot be read"),
     (None, "cannot be read")],
)  # fmt: skip
def test_bad_files(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "lines.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=f"{path}.*{reason}"):
        load_file(Arithmetic(2), str(path))
    with pytest.raises(UserError, match=reason):
        get(tmp_path, Arithmetic(2), DataConfig(1, 1, 1, file=str(path)))


def test_sorted_training_file_is_read_to_the_end(tmp_path: Path) -> None:
    """It starts with more duplicates than a search for new prompts would tolerate."""
    (tmp_path / "train.txt").write_text("1 + 2 = 3\n" * 50_001 + "2 + 2 = 4\n")
    path = str(tmp_path / "train.txt")
    sets = get(tmp_path / "data", Arithmetic(1), DataConfig(0, 0, 0, train_file=path))
    assert len(sets.train) == 2


def test_files_replace_test_and_training_sets(tmp_path: Path, capsys) -> None:
    test, train = tmp_path / "test.txt", tmp_path / "train.txt"
    test.write_text("1 + 2 = 3\n1 + 2 = 3\n")
    train.write_text("1 + 2 = 3\n2 + 2 = 4\n2 + 2 = 4\n")
    task, config = Arithmetic(1), DataConfig(9, 400, 9, file=str(test), train_file=str(train))
    sets = get(tmp_path / "data", task, config)
    assert [" ".join(task.decode(sets.test, 0).tokens), len(sets.test)] == ["1 + 2 = 3", 2]
    assert len(sets.validation) == 400
    assert prompts(sets.test)[0] not in prompts(sets.validation)
    assert len(sets.train) <= 1
    repeated = f"{test}: 1 prompts appear earlier in the file"
    printed = capsys.readouterr().err
    assert "left out" in printed and repeated in printed


def test_duplicate_prompts_in_a_measured_file_are_reported(tmp_path, capsys):
    path = tmp_path / "lines.txt"
    path.write_text("\ufeff1 + 2 = 3\n1 + 2 = 3\n2 + 2 = 4\n")  # a byte order mark is not a token
    task = Arithmetic(1)
    trained_on = load_file(task, str(path)).select(slice(1, 3))
    assert len(load_measured(task, str(path), trained_on)) == 3
    printed = capsys.readouterr().err
    assert f"{path}: 3 prompts occur twice or in the training set" in printed
    path.write_text("1 + 2 = 3\n")
    load_measured(task, str(path), trained_on.select(slice(1, 2)))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("size", [1, 2, 3])
def test_measured_prompts_are_the_first_unseen_candidates(size: int) -> None:
    sets = build(Arithmetic(3, capacity=4), DataConfig(2000, 50, 50), progress=False)
    trained = {*prompts(sets["train"]), *prompts(sets["validation"])}
    task = Arithmetic(size, capacity=4)
    count = {1: 60, 2: 500, 3: 500}[size]
    measured = draw_set(task, "measure", count, 5, [sets["train"], sets["validation"]])
    candidates = task.draw(5, STREAMS["measure"], 0, 40_000)
    assert len(set(prompts(measured))) == count
    assert_same(measured, first_distinct(candidates, count, trained))
    assert set(prompts(candidates)) & trained  # otherwise nothing was excluded
