"""Match3: do two of the given numbers and the query q add up to 0 modulo p?

One layer of tensor attention decides it; one layer of standard attention must grow with n, but
at trainable n the required width is small (Sanford, Hsu and Telgarsky 2023).
"""

import random
from itertools import combinations

import numpy as np

from common import UserError
from tasks.sequences import MAX_VOCABULARY, Example, SequenceSet
from tasks.task import Task, misplaced

MAX_MODULUS = MAX_VOCABULARY - 5  # padding, EOS, the marker, yes, no


class Match3(Task):
    """`size` numbers modulo p, a marker and a number q: do two numbers x, y give x + y + q ≡ 0?

    Sanford et al. ask this of every number; here only the last token asks, so one layer must
    combine three numbers. Half of the prompts have exactly one match, half none. Numbers are
    distinct, none is its own partner -q - x, and given q every number is equally frequent with and
    without a match. Averages over the numbers, which one layer of standard attention can compute,
    still help: sum and sum of squares give 66 % of the answers at n = 6, p = 25
    (docs/tensor.md). At p = 2n + 1 a single average decides. `modulus` p is odd, at least 2n + 1;
    null means 4n + 1. There is no chain. Training mixes 3 ... n numbers as a curriculum.

    Example (size 5, modulus 21; 15 + 2 + 4 = 21)::

        prompt  11 15 20 2 8 <sep> 4
        answer  yes
    """

    name = "match3"
    generator_version = 5
    min_size = 2
    formats = ("direct",)

    def __init__(self, size: int, format: str = "direct", modulus: int | None = None):
        super().__init__(size, format)
        modulus = 4 * self.size + 1 if modulus is None else modulus
        self.modulus = self.whole_number("modulus", modulus, 2 * self.size + 1, MAX_MODULUS)
        if self.modulus % 2 == 0:
            raise UserError(
                f"task match3: modulus={modulus} must be odd, so that 2x = -q has one x"
            )

    @property
    def own_tokens(self) -> list[str]:
        return ["<sep>", "no", "yes", *map(str, range(self.modulus))]

    @property
    def max_len(self) -> int:
        return self.size + 3

    def training_mixture(self) -> dict[int, float]:
        """k = 3 ... n numbers in proportion to 1 / k; there are too few prompts with two."""
        sizes = range(min(3, self.size), self.size + 1)
        total = sum(1 / k for k in sizes)
        return {k: 1 / k / total for k in sizes}

    def sample_prompt(self, rng: random.Random, size: int) -> list[str]:
        """Numbers from different pairs of partners, and for a match both of one pair."""
        p, query = self.modulus, rng.randrange(self.modulus)
        own = -query * (p + 1) // 2 % p  # its own partner: 2 own + query ≡ 0
        pairs = rng.sample(range(1, p // 2 + 1), size)  # own + d and own - d are partners
        numbers = [(own + rng.choice((d, -d))) % p for d in pairs]
        if rng.random() < 0.5:
            numbers[0] = (-query - numbers[1]) % p
        rng.shuffle(numbers)
        return [*map(str, numbers), "<sep>", str(query)]

    def solve(self, prompt: list[str]) -> tuple[list[str], list[str]]:
        *numbers, query = (int(token) for token in prompt if token != "<sep>")
        matches = ((x + y + query) % self.modulus == 0 for x, y in combinations(numbers, 2))
        return [], ["yes" if any(matches) else "no"]

    def parse(self, tokens: list[str]) -> Example:
        """The prompt includes the number after the marker."""
        example = super().parse(tokens)
        query, *answer = example.answer
        if not answer:
            raise UserError("no answer after q")
        return Example([*example.prompt, query], [], answer)

    def check_prompt(self, prompt: list[str]) -> str | None:
        least = min(3, self.size)
        if not least <= len(prompt) - 2 <= self.size:
            return f"the prompt has {len(prompt) - 2} numbers, outside {least} to {self.size}"
        return misplaced(prompt, set(self.own_tokens) - {"yes", "no"}, "a number")

    def kinds(self, sequences: SequenceSet) -> np.ndarray:
        return sequences.last_tokens

    def state_bits(self) -> float:
        return 1.0
