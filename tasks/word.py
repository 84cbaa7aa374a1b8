"""Word problems of finite monoids: the product of a word, or whether it is the identity."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from common import UserError
from tasks import omega
from tasks.monoids import monoid as monoid_of
from tasks.random_numbers import random_numbers
from tasks.sequences import Example, SequenceSet
from tasks.task import FORMATS, Task
from tasks.words import (
    ROUNDS,
    best_guess_from_counts,
    choose,
    flip_flop_words,
    member_words,
    prefix_products,
)

OWN = ("<sep>", "yes", "no")
MARKER, YES, NO, FIRST = range(2, 6)  # ids, after padding and EOS; FIRST is element 0's
MOST_COUNTED = 4  # letters; counts of n letters of k kinds are n^(k - 1) many


class Word(Task):
    """Words of ``size`` letters over a finite ``monoid`` (`tasks.monoids`); letters are elements.

    ``letters`` is ``three`` generators, ``all`` elements, or a list.  The chain gives the product
    of each prefix, from left to right.  ``question=value`` asks for the product of the word,
    ``question=member`` whether it lies in P: the identity of a group, the set state ``a`` of the
    flip-flop.  ``tail=omega`` asks about the infinite word u v v v ..: see `tasks.omega`.

    Letters are independent and uniform for ``value``.  For ``member`` half of the words lie in P,
    the others are alike to them by letter counts (`words.member_words`); words of the flip-flop
    are those of `words.flip_flop_words`.  ``format=direct`` trains on words of all
    lengths up to ``size``.

    Example (S3, all letters, size 5, value)::

        prompt  213 231 132 321 312 <sep>
        chain   213 321 231 213 132 <sep>
        answer  132
    """

    name = "word"
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
        if monoid == "flip-flop" and len(self._letters) < len(self._monoid):
            raise UserError("task word: letters of the flip-flop must be all three: 1, a, b")
        if self.tail == "omega" and self.question == "value":
            raise UserError(
                "task word: tail=omega needs question=member: u v^ω has no last product"
            )
        if self.labelled and self.question == "member":
            raise UserError("task word: format=tagged labels products, so it needs question=value")
        if self.size < self._least:
            raise UserError(f"task word: size={size} must be at least {self._least} here")

    def _numbers_of(self, letters: Any) -> tuple[int, ...]:
        """Return the numbers of the letters; `UserError` unless they generate the monoid."""
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
    def _least(self) -> int:
        """The shortest words that can be drawn."""
        if self.tail == "omega":
            return omega.PERIOD + 1
        return 2 if self.monoid == "flip-flop" else 1

    @property
    def own_tokens(self) -> list[str]:
        """The marker, yes and no, the elements; a bar before v where the word is u v v v .. ."""
        bar = ["|"] if self.tail == "omega" else []
        return [*OWN, *self._monoid.elements, *bar]

    @property
    def max_len(self) -> int:
        """2n + 3 with a chain, n + 2 without, n + 1 with labels; more for u v v v .. ."""
        if self.labelled:
            return self.size + 1
        chain, bar = self.size + 1, 0
        if self.tail == "omega":
            chain += omega.PERIOD * (omega.most_passes(self._monoid) - 1)
            bar = 1
        return self.size + bar + 2 + (chain if self.format == "cot" else 0)

    def training_mixture(self) -> dict[int, float]:
        """Without a chain, words of all lengths k up to ``size``, in proportion to k."""
        if self.format != "direct":
            return {self.size: 1.0}
        sizes = range(self._least, self.size + 1)
        return {k: k / sum(sizes) for k in sizes}

    def sample_prompt(self, rng: random.Random, size: int) -> list[str]:
        """Draw ``u | v``, followed by the marker; words without a tail come from `draw`."""
        u, v = omega.draw_word(rng, self._monoid, self._letters, size)
        elements = self._monoid.elements
        return [*(elements[i] for i in u), "|", *(elements[i] for i in v), "<sep>"]

    def solve(self, prompt: list[str]) -> tuple[list[str], list[str]]:
        """Multiply from left to right."""
        if self.tail == "omega":
            return omega.solve(self._monoid, prompt)
        state, chain = 0, []
        for letter in prompt[:-1]:
            state = int(self._monoid.table[state, self._monoid.number[letter]])
            chain.append(self._monoid.elements[state])
        if self.question == "value":
            return [*chain, "<sep>"], chain[-1:]
        return [*chain, "<sep>"], ["yes" if state == self._accepted else "no"]

    @property
    def _accepted(self) -> int:
        """P's only element: e, or the state ``a`` of the flip-flop."""
        return 1 if self.monoid == "flip-flop" else 0

    def accuracy_from_counts(self) -> float | None:
        """What a product can be guessed from letter counts alone (`words.best_guess_from_counts`).

        None with a chain, for membership, for the flip-flop, whose letters are not uniform, and for
        more than `MOST_COUNTED` letters.
        """
        guessed = self.format != "cot" and self.question == "value" and self.monoid != "flip-flop"
        if not guessed or len(self._letters) > MOST_COUNTED:
            return None
        return best_guess_from_counts(self._monoid, self._letters, self.size)

    def check_prompt(self, prompt: list[str]) -> str | None:
        """There must be ``size`` letters of the task's, or fewer without a chain; v has four."""
        word = [token for token in prompt[:-1] if token != "|"]
        least = self._least if self.format == "direct" else self.size
        if not least <= len(word) <= self.size:
            return f"the prompt has {len(word)} letters, not {self.size}"
        known = {self._monoid.elements[i] for i in self._letters}
        for position, token in enumerate(word):
            if token not in known:
                return f"letter {position + 1}, {token}, is none of the task's letters"
        bars = [position for position, token in enumerate(prompt) if token == "|"]
        if self.tail == "omega" and bars != [len(word) - omega.PERIOD]:
            return f"one bar must stand before the last {omega.PERIOD} letters"
        return None

    def draw(
        self, seed: int, stream: int, first: int, count: int, size: int | None = None
    ) -> SequenceSet:
        """Draw many words at once; see `Task.draw`."""
        size = self.size if size is None else size
        if self.tail == "omega":
            return super().draw(seed, stream, first, count, size)
        needed = self._numbers_needed(size)
        numbers = random_numbers(seed, stream, size, first, count, needed)
        letters = self._draw_letters(size, numbers)
        products = prefix_products(self._monoid, letters)
        width, dtype = self.max_len + 1, self.vocabulary.dtype
        if self.labelled:
            return SequenceSet.tagged(letters + FIRST, products + FIRST, MARKER, width, dtype)
        answer = products[:, -1:] + FIRST
        if self.question == "member":
            answer = np.where(products[:, -1:] == self._accepted, YES, NO)
        chain: list[np.ndarray | int] = [products + FIRST, MARKER] if self.format == "cot" else []
        parts = [letters + FIRST, MARKER, *chain, answer]
        return SequenceSet.of_columns(parts, size + 1, width, dtype)

    def _numbers_needed(self, size: int) -> int:
        """How many random numbers a word takes."""
        if self.monoid == "flip-flop":
            return 2 * size + 2
        return (2 * ROUNDS + 1) * size + 2 if self.question == "member" else size

    def _draw_letters(self, size: int, numbers: np.ndarray) -> np.ndarray:
        """Return words (N, n) as element numbers, from ``numbers`` (N, `_numbers_needed`)."""
        if self.monoid == "flip-flop":
            return flip_flop_words(size, numbers)
        if self.question == "member":
            return member_words(self._monoid, self._letters, size, numbers)
        return np.array(self._letters)[choose(numbers, len(self._letters))]

    def dependencies(self, example: Example) -> list[list[int]]:
        """A product needs its letter and the product before; a label, all letters up to its own."""
        n = len(example.prompt) - 1
        if self.tail == "omega":
            return super().dependencies(example)
        if self.format == "direct":
            return [list(range(n))]
        if self.labelled:
            return [list(range(i + 1)) for i in range(n)]
        return [[0], *([i, n + i] for i in range(1, n)), [], [2 * n]]

    def state_bits(self, size: int) -> float | tuple[float, float]:
        """As `Task.state_bits`: words with a chain, products without; a bit for membership.

        From below only a bit, where not every word is drawn: for membership and the flip-flop.
        """
        reached, most = {0}, 1
        for _ in range(size - self.labelled):
            reached = {
                int(self._monoid.table[s, letter]) for s in reached for letter in self._letters
            }
            most = max(most, len(reached))
        high = math.log2(most if self.labelled else len(reached))
        if self.format == "cot":
            high = size * math.log2(len(self._letters))
        elif self.question == "member":
            return 1.0
        return high if self._monoid.is_group and self.question == "value" else (1.0, high)
