"""The interface and its defaults, through a toy task, and what holds for all of ours."""

import random
from typing import ClassVar

import numpy as np
import pytest

from errors import UserError
from tasks.arithmetic import Arithmetic
from tasks.closure import Closure
from tasks.copying import Copying
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.generate import planned_sizes
from tasks.lis import LIS
from tasks.locality import measure
from tasks.mqar import MQAR
from tasks.task import EOS, PAD, Example, Task, Vocabulary
from tasks.word import Word

ALL = [
    Arithmetic(4),
    Arithmetic(4, order="growth"),
    LIS(6),
    EditDistance(4),
    EditDistanceLocal(4),
    Word(6, monoid="S3", letters="all"),
    Closure(6, monoid="S3", r=2),
    MQAR(5),
    MQAR(6, queries=2),
    Copying(6),
]


class Parity(Task):
    """Toy: bits, their running parity, the last parity."""

    name: ClassVar[str] = "parity"

    def __init__(self, size: int, format: str = "cot", ones: int = 1):
        super().__init__(size, format)
        self.ones = ones

    @property
    def own_tokens(self) -> list[str]:
        return ["<sep>", "0", "1"]

    @property
    def max_prompt_len(self) -> int:
        return self.size + 1

    @property
    def max_len(self) -> int:
        return self.size + 2 + (self.size + 1 if self.format == "cot" else 0)

    def sample_prompt(self, rng: random.Random, size: int) -> list[str]:
        return [str(rng.randint(0, self.ones)) for _ in range(size)] + ["<sep>"]

    def solve(self, prompt: list[str]) -> tuple[list[str], list[str]]:
        bits = [int(bit) for bit in prompt[:-1]]
        parities = [str(sum(bits[: i + 1]) % 2) for i in range(len(bits))]
        return [*parities, "<sep>"], parities[-1:]


def test_a_task_needs_little() -> None:
    task = Parity(3)
    sequence = task.parse("1 1 0 <sep> 1 0 0 <sep> 0".split())
    assert sequence == Example(["1", "1", "0", "<sep>"], ["1", "0", "0", "<sep>"], ["0"])
    assert task.check(sequence.tokens) is None
    assert "chain token 2" in (task.check("1 1 0 <sep> 1 1 0 <sep> 0".split()) or "")
    drawn = task.draw(0, 0, 5, 3)
    assert (drawn.tokens.shape, drawn.tokens.dtype) == ((3, 10), np.uint8)
    again = task.draw(0, 0, 6, 1)
    assert (again.tokens[0] == drawn.tokens[1]).all()
    assert task.parameters == {"size": 3, "format": "cot", "ones": 1}
    assert task.with_parameters(size=5, format="direct").max_len == 7
    assert task.training_mixture() == {3: 1.0}
    with pytest.raises(UserError, match="longest possible, 9"):
        task.encode([Example(["0"] * 9, [], ["0"])])


def test_shares_must_add_up(monkeypatch) -> None:
    monkeypatch.setattr(Parity, "training_mixture", lambda self: {2: 0.5, 3: 0.4})
    with pytest.raises(UserError, match="add up to 1"):
        planned_sizes(Parity(3), "train", 10, 0)
    monkeypatch.setattr(Parity, "training_mixture", lambda self: {2: 0.25, 3: 0.75})
    assert sorted(planned_sizes(Parity(3), "train", 10, 0).tolist()) == [2] * 2 + [3] * 8


@pytest.mark.parametrize("task", ALL, ids=lambda task: f"{task.name}-{task.parameters}")
def test_rows_are_closed_and_padded(task: Task) -> None:
    drawn = task.draw(0, 2, 0, 200)
    assert drawn.tokens.shape == (200, task.max_len + 1)
    assert drawn.tokens.dtype == task.vocabulary.dtype
    assert drawn.lengths.dtype == drawn.prompt_lengths.dtype == np.int32
    marker = task.vocabulary.index[task.answer_marker]
    for row, length, prompt_length in zip(
        drawn.tokens, drawn.lengths, drawn.prompt_lengths, strict=True
    ):
        assert row[length - 1] == 1
        assert not row[length:].any()
        assert (row[: length - 1] > 1).all()
        assert row[prompt_length - 1] == marker
        assert (row[: prompt_length - 1] != marker).all()


@pytest.mark.parametrize("task", ALL, ids=lambda task: f"{task.name}-{task.parameters}")
def test_a_candidate_depends_on_its_index_alone(task: Task) -> None:
    whole = task.draw(7, 1, 100, 50)
    parts = [task.draw(7, 1, 100, 13), task.draw(7, 1, 113, 37)]
    assert (np.concatenate([part.tokens for part in parts]) == whole.tokens).all()
    for other in [(8, 1, 100), (7, 2, 100), (7, 1, 101)]:
        assert (task.draw(*other, 50).tokens != whole.tokens).any(axis=1).mean() > 0.8


@pytest.mark.parametrize("task", ALL, ids=lambda task: f"{task.name}-{task.parameters}")
def test_encoding_and_decoding_are_inverse(task: Task) -> None:
    sequences = [task.sample(random.Random(i)) for i in range(50)]
    encoded = task.encode(sequences)
    assert [task.decode(encoded, row) for row in range(50)] == sequences
    assert len(encoded.select(np.arange(50) % 2 == 0)) == 25


@pytest.mark.parametrize("task", ALL, ids=lambda task: f"{task.name}-{task.parameters}")
def test_dependencies_and_steps_fit_the_sequence(task: Task) -> None:
    for seed in range(20):
        sequence = task.sample(random.Random(seed))
        needed, steps = task.dependencies(sequence), task.chain_steps(sequence)
        first = len(sequence.prompt)
        assert len(needed) == len(steps) == len(sequence.tokens) - first
        assert all(0 <= i < first + k for k, own in enumerate(needed) for i in own)
        assert steps[0] == 0
        assert set(np.diff(steps).tolist()) <= {0, 1}


@pytest.mark.parametrize("task", ALL, ids=lambda task: f"{task.name}-{task.parameters}")
def test_mutated_lines_are_rejected(task: Task) -> None:
    """One token changed to another: only a changed prompt can still fit, and then by chance."""
    rng = random.Random(0)
    own = task.vocabulary.tokens[2:]
    accepted = 0
    for seed in range(300):
        sequence = task.sample(random.Random(seed))
        tokens = sequence.tokens
        place = rng.randrange(len(tokens))
        tokens[place] = rng.choice([token for token in own if token != tokens[place]])
        reason = task.check(tokens)
        if reason is None:
            assert place < len(sequence.prompt) - 1, (sequence, tokens)
            assert task.complete(tokens[: len(sequence.prompt)]).answer == tokens[-1:]
            accepted += 1
    assert accepted < 60


def test_extract_answer() -> None:
    task = LIS(6)
    assert task.extract_answer(["1", "2", "<sep>", "2", EOS, PAD]) == ["2"]
    assert task.extract_answer(["2", EOS, "3"]) == ["2"]
    assert task.extract_answer(["1", "<sep>", "2"]) is None
    assert task.extract_answer(["1", "<sep>", EOS]) == []


def test_vocabulary() -> None:
    vocabulary = Vocabulary(["a", "b"])
    assert vocabulary.tokens == (PAD, EOS, "a", "b")
    assert vocabulary.decode(vocabulary.encode(["b", "a"])) == ["b", "a"]
    with pytest.raises(UserError, match="'c'"):
        vocabulary.encode(["c"])
    assert Vocabulary(map(str, range(254))).dtype == np.uint8
    assert Vocabulary(map(str, range(255))).dtype == np.uint16


def test_locality_trends() -> None:
    """LIS and ED are not local by Definition 5.3; by chain states LIS is half, ED 1 / sqrt(L)."""
    lis = [measure(LIS(n)) for n in (40, 110, 250)]
    ed = [measure(EditDistance(n)) for n in (6, 12, 20)]
    local = [measure(EditDistanceLocal(n)) for n in (6, 12, 20)]
    assert all(found.relative > 0.95 for found in lis)
    assert all(found.relative > 0.85 for found in ed)
    assert all(abs(found.chain_relative - 0.5) < 0.01 for found in lis)
    roots = [found.chain_relative * found.max_len**0.5 for found in ed]
    assert max(roots) / min(roots) < 1.2
    times_n = [found.relative * n for found, n in zip(local, (6, 12, 20), strict=True)]
    assert max(times_n) / min(times_n) < 1.2
    arithmetic = [measure(Arithmetic(n)).relative * n for n in (6, 10, 16)]
    assert max(arithmetic) / min(arithmetic) < 1.2
