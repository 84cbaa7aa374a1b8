"""Word problems of finite monoids: the product of a word, or its membership."""

import functools
import itertools
import math
import random
from typing import Any

import numpy as np

from common import UserError
from tasks.monoids import Monoid, monoid_of
from tasks.random_numbers import random_numbers
from tasks.sequences import SequenceSet
from tasks.task import FORMATS, Task, in_proportion, misplaced
from tasks.words import ROUNDS, choose, flip_flop_words, member_words, prefix_products

OWN = ("<sep>", "yes", "no")
YES, NO, FIRST = range(3, 6)  # ids, after padding and EOS; FIRST is element 0's
PERIOD = 4  # letters of v
ATTEMPTS = 100


class Word(Task):
    """Words of `size` letters over a finite `monoid` (`tasks.monoids`); letters are elements.

    `letters`: `three` generators, `all` elements, or a list. The chain gives the product of each
    prefix. question="value" asks for the product; "member" whether it is the identity of a group,
    or the flip-flop's state a. tail="omega" asks whether u v v v .. is accepted (`passes`). For
    "value", letters are independent and uniform, except for the flip-flop
    (`words.flip_flop_words`). For "member", half of the answers are yes; without a tail, letter
    counts are similar (`words.member_words`). format="direct" trains on all lengths up to `size`.

    Example (S3, all letters, size 5, value)::

        prompt  213 231 132 321 312 <sep>
        chain   213 321 231 213 132 <sep>
        answer  132
    """

    name = "word"
    generator_version = 5
    formats = FORMATS

    def __init__(
        self,
        size: int,
        format: str = "cot",
        monoid: str = "A5",
        letters: Any = "three",
        question: str = "value",
        tail: str = "none",
        capacity: int | None = None,
    ):
        super().__init__(size, format, capacity)
        self.monoid, self.letters = monoid, letters
        self.question = self.one_of("question", question, ("value", "member"))
        self.tail = self.one_of("tail", tail, ("none", "omega"))
        self._monoid = monoid_of(monoid)
        self._letters = self._numbers_of(letters)
        self._yes_product = 1 if monoid == "flip-flop" else 0  # element, for question=member
        # The shortest words that can be drawn.
        self._least = PERIOD + 1 if self.tail == "omega" else 1 + (monoid == "flip-flop")
        if monoid == "flip-flop" and len(self._letters) < len(self._monoid):
            raise UserError("task word: letters of the flip-flop must be all three: 1, a, b")
        if self.tail == "omega" and self.question == "value":
            raise UserError(
                "task word: tail=omega needs question=member: u v^ω has no last product"
            )
        if self.labelled and self.question == "member":
            raise UserError(
                f"task word: format={self.format} labels products, so it needs question=value"
            )
        if self.size < self._least:
            raise UserError(f"task word: size={size} must be at least {self._least}")

    def _numbers_of(self, letters: Any) -> tuple[int, ...]:
        """Numbers of the letters; UserError unless they generate the monoid."""
        if letters == "all":
            return tuple(range(len(self._monoid)))
        if isinstance(letters, str) and letters != "three":
            raise UserError(f"task word: letters={letters!r} must be three, all, or a list")
        given = self._monoid.letters if letters == "three" else letters
        numbers = self._monoid.numbers_of("letters", given)
        reached = len(self._monoid.generated(list(numbers)))
        if reached < len(self._monoid):
            raise UserError(
                f"task word: letters={','.join(map(str, given))} do not generate {self.monoid}: "
                f"they reach {reached} of its {len(self._monoid)} elements"
            )
        return numbers

    @property
    def own_tokens(self) -> list[str]:
        bar = ["|"] if self.tail == "omega" else []
        return [*OWN, *self._monoid.elements, *bar]

    @property
    def max_len(self) -> int:
        """2n + 3 with a chain, n + 2 without, n + 1 with tags, 2n online; more for u v v v .. ."""
        if self.labelled:
            return 2 * self.size if self.format == "online" else self.size + 1
        chain, bar = self.size + 1, 0
        if self.tail == "omega":
            passed = [passes(self._monoid, [], [g])[1] for g in range(len(self._monoid))]
            chain += PERIOD * (max(map(len, passed)) - 1)
            bar = 1
        return self.size + bar + 2 + (chain if self.format == "cot" else 0)

    def training_mixture(self) -> dict[int, float]:
        least = self._least if self.format == "direct" else self.size
        return in_proportion(range(least, self.size + 1))

    def sample_prompt(self, rng: random.Random, size: int) -> list[str]:
        """Draw `u | v <sep>`, u and v uniform given an answer drawn by a fair coin; if `ATTEMPTS`
        draws do not give this answer, the last one is kept."""
        wanted = rng.random() < 0.5
        for _ in range(ATTEMPTS):
            word = rng.choices(self._letters, k=size)
            u, v = word[:-PERIOD], word[-PERIOD:]
            if is_accepted(self._monoid, u, v) == wanted:
                break
        elements = self._monoid.elements
        return [*(elements[i] for i in u), "|", *(elements[i] for i in v), "<sep>"]

    def solve(self, prompt: list[str]) -> tuple[list[str], list[str]]:
        if self.tail == "omega":
            return solve_omega(self._monoid, prompt)
        products = self._monoid.products(self._monoid.number[letter] for letter in prompt[:-1])
        chain = [self._monoid.elements[product] for product in products]
        if self.question == "value":
            return [*chain, "<sep>"], chain[-1:]
        return [*chain, "<sep>"], ["yes" if products[-1] == self._yes_product else "no"]

    def check_prompt(self, prompt: list[str]) -> str | None:
        word = [token for token in prompt[:-1] if token != "|"]
        least = self._least if self.format == "direct" else self.size
        if not least <= len(word) <= self.size:
            return f"the prompt has {len(word)} letters, outside {least} to {self.size}"
        known = {self._monoid.elements[i] for i in self._letters}
        if reason := misplaced(word, known, "one of the task's letters"):
            return reason
        bars = [position for position, token in enumerate(prompt) if token == "|"]
        if self.tail == "omega" and bars != [len(word) - PERIOD]:
            return f"one bar must stand before the last {PERIOD} letters"
        return None

    def draw_batch(self, seed: int, stream: int, first: int, count: int, size: int) -> SequenceSet:
        if self.tail == "omega":
            return super().draw_batch(seed, stream, first, count, size)
        numbers = functools.partial(random_numbers, seed, stream, size, first, count)
        if self.monoid == "flip-flop":
            letters = flip_flop_words(size, numbers(2 * size + 2))
        elif self.question == "member":
            width = (2 * ROUNDS + 1) * size + 2
            letters = member_words(self._monoid, self._letters, size, numbers(width))
        else:
            letters = np.array(self._letters)[choose(numbers(size), len(self._letters))]
        products = prefix_products(self._monoid, letters)
        answer = products[:, -1:] + FIRST
        if self.question == "member":
            answer = np.where(products[:, -1:] == self._yes_product, YES, NO)
        return self.join(letters + FIRST, products + FIRST, answer)

    def kinds(self, sequences: SequenceSet) -> np.ndarray | None:
        return sequences.last_tokens if self.question == "member" else None

    def state_bits(self) -> float | tuple[float, float]:
        """log2 of the number of words with a chain, of products without; for membership, one bit
        without. Where not every word is drawn (membership, flip-flop), the lower bound is 1."""
        reached, most = {0}, 1
        for _ in range(self.size - self.labelled):
            reached = {
                int(self._monoid.table[s, letter]) for s in reached for letter in self._letters
            }
            most = max(most, len(reached))
        high = math.log2(most if self.labelled else len(reached))
        if self.format == "cot":
            high = self.size * math.log2(len(self._letters))
        elif self.question == "member":
            return 1.0
        return high if self._monoid.is_group and self.question == "value" else (1.0, high)


# Infinite words: u v^ω is in [P] if its running product visits P infinitely often. This is weak
# recognition (Fleischer and Kufleitner 2019) by all linked pairs (s, e), s e = s and e e = e, with
# s in P: for v = x y, s = h(u) h(v)^i h(x) recurs after every further y x.


def accepted(monoid: Monoid) -> set[int]:
    """P: a twentieth of a group's elements, or the flip-flop's state a. About half of uniform words
    over all letters are in [P] (A5 and S5), two in five over three letters."""
    return set(range(max(1, len(monoid) // 20))) if monoid.is_group else {1}


def passes(monoid: Monoid, u: list[int], v: list[int]) -> tuple[list[int], list[list[int]], int]:
    """Products along u; along each v, until the last recurs; the pass from which they repeat."""
    along_u, found = monoid.products(u), []
    ends = [0, *along_u][-1:]
    while True:
        found.append(monoid.products(v, ends[-1]))
        end = found[-1][-1]
        if end in ends:
            return along_u, found, ends.index(end)
        ends.append(end)


def is_accepted(monoid: Monoid, u: list[int], v: list[int]) -> bool:
    _, found, first = passes(monoid, u, v)
    return not accepted(monoid).isdisjoint(itertools.chain.from_iterable(found[first:]))


def solve_omega(monoid: Monoid, prompt: list[str]) -> tuple[list[str], list[str]]:
    """Chain and answer of `u | v <sep>`: products along u, then v until its last one recurs."""
    bar = prompt.index("|")
    u, v = ([monoid.number[t] for t in part] for part in (prompt[:bar], prompt[bar + 1 : -1]))
    along_u, found, _ = passes(monoid, u, v)
    chain = [*along_u, *(state for products in found for state in products)]
    answer = "yes" if is_accepted(monoid, u, v) else "no"
    return [*(monoid.elements[state] for state in chain), "<sep>"], [answer]
