"""Copy: repeat the string (Jelassi et al. 2024, "Repeat after me")."""

import math
import string

from tasks.random_numbers import random_numbers
from tasks.sequences import SequenceSet
from tasks.task import Task
from tasks.words import choose


class Copying(Task):
    """`size` letters, uniform among the first `alphabet_size`; the answer repeats them.

    Training mixes strings of 1 .. n letters in equal shares, as Jelassi et al. do; where too few
    distinct ones exist, length n fills the gap. Test strings have length n. There is no chain, so
    both formats are the same.

    Example (size 4)::

        prompt  h d d q <sep>
        answer  h d d q
    """

    name = "copy"

    def __init__(
        self,
        size: int,
        format: str = "direct",
        alphabet_size: int = 26,
        capacity: int | None = None,
    ):
        super().__init__(size, format, capacity)
        self.alphabet_size = self.whole_number("alphabet_size", alphabet_size, 1, 26)

    @property
    def own_tokens(self) -> list[str]:
        return ["<sep>", *string.ascii_lowercase[: self.alphabet_size]]

    @property
    def max_len(self) -> int:
        return 2 * self.size + 1

    def training_mixture(self) -> dict[int, float]:
        return dict.fromkeys(range(1, self.size + 1), 1 / self.size)

    def solve(self, prompt: list[str]) -> tuple[list[str], list[str]]:
        return [], prompt[:-1]

    def check_prompt(self, prompt: list[str]) -> str | None:
        if not 1 <= len(prompt) - 1 <= self.size:
            return f"the prompt has {len(prompt) - 1} letters, not 1 to {self.size}"
        return None

    def draw_batch(self, seed: int, stream: int, first: int, count: int, size: int) -> SequenceSet:
        numbers = random_numbers(seed, stream, size, first, count, size)
        letters = choose(numbers, self.alphabet_size) + 3  # ids after padding, EOS, marker
        return self.join(letters, None, letters)

    def state_bits(self) -> float:
        return self.size * math.log2(self.alphabet_size)
