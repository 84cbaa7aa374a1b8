"""Data sets: distinct prompts, disjoint splits, the same bytes everywhere, shortfalls, files."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from common import UserError
from tasks.arithmetic import Arithmetic
from tasks.data import (
    DataSpec,
    build,
    data_key,
    load_file,
    load_measured,
    load_or_build,
    require_prompts,
)
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.lis import LIS
from tasks.store import fingerprint
from tasks.task import SequenceSet, Task

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests" / "oracles" / "samples"
SPEC = DataSpec(train=3000, validation=200, test=500)

# A change here means other data under the same seed: raise tasks.data.GENERATOR_VERSION with it.
FINGERPRINTS = {
    "arithmetic": "4fc9b2d1e3d9fc7d35767be6e9468deb0f435f0ff5ae1330e10abe68ae94dcbc",
    "lis": "7bc41d88772f6979503a4299d0dd62b23b27f788735c7c9d183bfb8b37a2b91a",
    "ed": "46f185fc75743866f4fcc593406dd2fbd64470052f48f02810c56e92ef74c7f7",
    "ed_local": "b5888252d03fc4cbab6c2df1923fb7c8e6a99df39127b6dc9f2c3c432e0371af",
}
ALL: list[Task] = [Arithmetic(3), LIS(6), EditDistance(4), EditDistanceLocal(4)]


def prompts(sequences: SequenceSet) -> list[bytes]:
    return [
        row[:length].tobytes()
        for row, length in zip(sequences.tokens, sequences.prompt_lengths, strict=True)
    ]


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_prompts_are_distinct_and_splits_disjoint(task: Task) -> None:
    sets, _ = build(task, SPEC, progress=False)
    assert {split: len(own) for split, own in sets.items()} == {
        "train": 3000, "validation": 200, "test": 500,
    }  # fmt: skip
    everything = [prompt for own in sets.values() for prompt in prompts(own)]
    assert len(set(everything)) == len(everything) == 3700


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_test_set_is_the_first_distinct_candidates_in_order(task: Task) -> None:
    """By a plain Python set over the tokens instead of hashes in a table."""
    sets, _ = build(task, DataSpec(0, 0, 500), progress=False)
    candidates = task.draw(0, 0, 0, 5000)
    first: dict[bytes, int] = {}
    for index, prompt in enumerate(prompts(candidates)):
        first.setdefault(prompt, index)
    expected = candidates.select(list(first.values())[:500])
    assert (sets["test"].tokens == expected.tokens).all()


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_bytes_are_those_recorded(task: Task) -> None:
    sets, _ = build(task, SPEC, workers=2, progress=False)
    assert fingerprint(sets) == FINGERPRINTS[task.name]


def test_bytes_do_not_depend_on_hash_seed_or_workers() -> None:
    script = (
        "import sys\n"
        "from test_data_sets import ALL, SPEC, build, fingerprint\n"
        "for task in ALL: print(fingerprint(build(task, SPEC, int(sys.argv[1]), False)[0]))\n"
    )
    outputs = []
    for hash_seed, workers in [("1", "1"), ("77", "3")]:
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}",
        }
        result = subprocess.run(
            [sys.executable, "-c", script, workers],
            capture_output=True, text=True, check=True, env=environment,
        )  # fmt: skip
        outputs.append(result.stdout.split())
    assert outputs[0] == outputs[1] == [FINGERPRINTS[task.name] for task in ALL]


def test_too_few_distinct_prompts_is_an_error_that_names_how_many_there_are() -> None:
    spec = DataSpec(train=300, validation=100, test=100)
    with pytest.raises(UserError, match="too few distinct prompts: train wants 300, reached 273"):
        build(Arithmetic(1), spec, progress=False)
    sets, _ = build(Arithmetic(1), DataSpec(273, 100, 100), progress=False)
    assert len(sets["train"]) == 273


@pytest.mark.parametrize(
    "task", [*ALL, Arithmetic(1), Arithmetic(2)], ids=lambda task: f"{task.name}-{task.size}"
)
def test_too_few_prompts_are_told_before_data_are_wanted(task: Task, tmp_path: Path) -> None:
    """Exactly the tasks whose sets cannot be drawn are refused; what repetitions clear is not."""
    spec = DataSpec(train=60_000, validation=0, test=100, directory=str(tmp_path / "data"))
    if task.size > 2:
        require_prompts(task, spec)
        assert not (tmp_path / "data").exists()
    else:
        with pytest.raises(UserError, match="too few distinct prompts: train wants 60,000"):
            require_prompts(task, spec)


def test_key_tells_apart_what_decides_the_content(tmp_path: Path) -> None:
    line = "1 + 2 = 3\n"
    (tmp_path / "a.txt").write_text(line)
    (tmp_path / "b.txt").write_text(line * 2)
    specs = [
        DataSpec(10, 1, 1),
        DataSpec(11, 1, 1),
        DataSpec(10, 2, 1),
        DataSpec(10, 1, 1, seed=1),
        DataSpec(10, 1, 1, file=str(tmp_path / "a.txt")),
        DataSpec(10, 1, 1, file=str(tmp_path / "b.txt")),
        DataSpec(10, 1, 1, train_file=str(tmp_path / "b.txt")),
    ]
    keys = [data_key(Arithmetic(2), spec) for spec in specs]
    keys += [data_key(task, specs[0]) for task in ALL]
    keys += [data_key(Arithmetic(2, order="growth"), specs[0])]
    assert len(set(keys)) == len(keys)
    assert data_key(Arithmetic(2), DataSpec(10, 1, 1, directory="elsewhere")) == keys[0]


@pytest.mark.parametrize("bad", [{"train": -1}, {"test": 10**9 + 1}, {"seed": -1}, {"seed": 2**63}])
def test_bad_specification(bad: dict[str, int]) -> None:
    with pytest.raises(UserError, match=next(iter(bad))):
        DataSpec(**{"train": 1, "validation": 1, "test": 1, **bad})


@pytest.mark.parametrize("task", [Arithmetic(6), LIS(40), EditDistance(6)], ids=lambda t: t.name)
def test_loads_the_files_of_cot_benchmark(task: Task) -> None:
    path = SAMPLES / f"{task.name}-{task.size}.txt"
    loaded = load_file(task, str(path))
    lines = path.read_text().splitlines()
    assert [" ".join(task.decode(loaded, row).tokens) for row in range(len(loaded))] == [
        " ".join(line.split()) for line in lines
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"1 + 2 = 3\n\n1 + 2 = 4\n", "line 3: chain step 1"),
        (b"", "holds no sequence"),
        (b"\xff\xfe", r"line 1: is not text in UTF-8 \(byte 0xff\)"),
        (b"1 + 2 = 3\r\n\n1 + \xe9 = 3\n", r"line 3: is not text in UTF-8 \(byte 0xe9\)"),
        (b"1 + 2 = 3\n\xc3", r"line 2: is not text in UTF-8 \(byte 0xc3\)"),
        (None, "cannot be read"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "lines.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=reason) as caught:
        load_file(Arithmetic(2), str(path))
    assert str(path) in str(caught.value)


def test_a_byte_order_mark_is_no_token(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"\xef\xbb\xbf1 + 2 = 3\n")
    assert len(load_file(Arithmetic(2), str(path))) == 1


def test_files_stand_in_for_test_and_training_sets(tmp_path: Path, capsys) -> None:
    test, train = tmp_path / "test.txt", tmp_path / "train.txt"
    test.write_text("1 + 2 = 3\n")
    train.write_text("1 + 2 = 3\n2 + 2 = 4\n2 + 2 = 4\n")
    spec = DataSpec(9, 400, 9, directory=str(tmp_path), file=str(test), train_file=str(train))
    task = Arithmetic(1)
    sets = load_or_build(task, spec, progress=False)
    assert [" ".join(task.decode(sets.test, 0).tokens), len(sets.test)] == ["1 + 2 = 3", 1]
    own = prompts(sets.validation)
    assert len(own) == 400
    assert prompts(sets.test)[0] not in own
    assert len(sets.train) <= 1
    assert "left out" in capsys.readouterr().err


def test_what_a_measured_file_repeats_or_was_trained_on_is_told(tmp_path: Path, capsys) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("1 + 2 = 3\n1 + 2 = 3\n2 + 2 = 4\n")
    task = Arithmetic(1)
    trained_on = load_file(task, str(path)).select(slice(1, 3))
    assert len(load_measured(task, str(path), trained_on)) == 3
    told = capsys.readouterr().err
    assert f"{path}: 1 prompts stand in it before" in told
    assert f"{path}: 2 prompts were trained on" in told
    path.write_text("1 + 2 = 3\n")
    load_measured(task, str(path), trained_on.select(slice(1, 2)))
    assert capsys.readouterr().err == ""


def test_what_a_file_repeats_is_told_of_stored_sets_too(tmp_path: Path, capsys) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("1 + 2 = 3\n1 + 2 = 3\n")
    spec = DataSpec(20, 0, 2, directory=str(tmp_path / "data"), file=str(path))
    for _ in range(2):
        load_or_build(Arithmetic(1), spec, progress=False)
        assert f"{path}: 1 prompts stand in it before" in capsys.readouterr().err


def test_stored_sets_are_the_built_ones(tmp_path: Path) -> None:
    spec = DataSpec(700, 0, 300, directory=str(tmp_path / "new" / "data"))
    task = LIS(130)  # two bytes a token
    first = load_or_build(task, spec, progress=False)
    again = load_or_build(task, spec, progress=False)
    assert first.path == again.path == tmp_path / "new" / "data" / data_key(task, spec)
    assert first.samples_per_second is not None
    assert again.samples_per_second is None
    assert first.fingerprint == again.fingerprint
    for split in ("train", "validation", "test"):
        one, two = getattr(first, split), getattr(again, split)
        for name in ("tokens", "lengths", "prompt_lengths"):
            a, b = getattr(one, name), getattr(two, name)
            assert a.dtype == b.dtype
            assert np.array_equal(a, b)


def test_drawing_needs_no_torch_and_no_hydra() -> None:
    """Blocked modules raise ImportError; nothing below `models` may import them."""
    script = (
        "import sys\n"
        "blocked = ['hydra', 'omegaconf', 'wandb', 'torch']\n"
        "sys.modules.update(dict.fromkeys(blocked))\n"
        "from tasks import by_name, data, lis, store\n"
        "sets, _ = data.build(lis.LIS(5), data.DataSpec(10, 1, 1), progress=False)\n"
        "print(len(sets['train']))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert result.stdout == "10\n", result.stderr


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_a_test_set_alone_is_that_of_the_whole(task: Task, tmp_path: Path) -> None:
    whole, _ = build(task, SPEC, progress=False)
    spec = DataSpec(train=0, validation=0, test=500, directory=str(tmp_path))
    for _ in range(2):  # built, then read
        alone = load_or_build(task, spec, progress=False)
        assert np.array_equal(alone.test.tokens, whole["test"].tokens)
        assert np.array_equal(alone.test.lengths, whole["test"].lengths)
        assert np.array_equal(alone.test.prompt_lengths, whole["test"].prompt_lengths)
        for empty in (alone.train, alone.validation):
            assert empty.tokens.shape == (0, task.max_len + 1)
            assert empty.tokens.dtype == task.vocabulary.dtype
    assert alone.samples_per_second is None
