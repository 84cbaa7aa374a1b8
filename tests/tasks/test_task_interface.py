"""The `Task` interface and its defaults, tested with a toy task."""

import random

import numpy as np
import pytest

from common import UserError
from tasks.sampling import planned_sizes
from tasks.sequences import Example
from tasks.task import Task, build_task


class Parity(Task):
    """Toy task: bits, their running parity, the final parity."""

    name, own_tokens = "parity", ("<sep>", "0", "1")

    def __init__(self, size: int, format: str = "cot", ones: int = 1):
        super().__init__(size, format)
        self.ones = ones

    @property
    def max_len(self) -> int:
        return self.size + 2 + (self.size + 1) * (self.format == "cot")

    def sample_prompt(self, rng: random.Random, size: int) -> list[str]:
        return [str(rng.randint(0, self.ones)) for _ in range(size)] + ["<sep>"]

    def solve(self, prompt: list[str]) -> tuple[list[str], list[str]]:
        parities = [str(prompt[: i + 1].count("1") % 2) for i in range(len(prompt) - 1)]
        return [*parities, "<sep>"], parities[-1:]


def test_defaults_of_a_minimal_task() -> None:
    task = build_task({"_target_": f"{__name__}.Parity", "size": 3, "capacity": None})
    sequence = task.parse("1 1 0 <sep> 1 0 0 <sep> 0".split())
    assert sequence == Example(["1", "1", "0", "<sep>"], ["1", "0", "0", "<sep>"], ["0"])
    assert task.check(sequence.tokens) is None
    assert "chain token 2" in (task.check("1 1 0 <sep> 1 1 0 <sep> 0".split()) or "")
    drawn = task.draw(0, 0, 5, 3)
    assert (drawn.tokens.shape, drawn.tokens.dtype) == ((3, 10), np.uint8)
    assert (task.draw(0, 0, 6, 1).tokens[0] == drawn.tokens[1]).all()
    assert task.parameters == {"size": 3, "format": "cot", "ones": 1}
    assert task.with_parameters(size=5, format="direct").max_len == 7
    assert task.training_mixture() == {3: 1.0}
    with pytest.raises(ValueError, match="max_len=9"):
        task.encode([Example(["0"] * 9, [], ["0"])])


@pytest.mark.parametrize("chain", [["1", "0"], "1 0 <sep>"])
def test_chains_end_with_the_marker(monkeypatch, chain) -> None:
    monkeypatch.setattr(Parity, "solve", lambda self, prompt: (chain, ["0"]))
    with pytest.raises(UserError, match="ends with '<sep>'"):
        Parity(2).draw(0, 0, 0, 1)


def test_prompts_end_with_the_marker() -> None:
    with pytest.raises(UserError, match="a prompt has no '<sep>'"):
        Parity(2).complete(["0", "1"])


def test_invalid_vocabulary_raises_a_user_error(monkeypatch) -> None:
    monkeypatch.setattr(Parity, "own_tokens", ["0", "<sep>", "0"])
    with pytest.raises(UserError, match="task: a vocabulary must not contain a token twice"):
        build_task({"_target_": f"{__name__}.Parity", "size": 2})


def test_shares_must_add_up(monkeypatch) -> None:
    monkeypatch.setattr(Parity, "training_mixture", lambda self: {2: 0.5, 3: 0.4})
    with pytest.raises(UserError, match="add up to 1"):
        planned_sizes(Parity(3), "train", 10, 0)
    monkeypatch.setattr(Parity, "training_mixture", lambda self: {2: 0.25, 3: 0.75})
    assert sorted(planned_sizes(Parity(3), "train", 10, 0).tolist()) == [2] * 2 + [3] * 8
