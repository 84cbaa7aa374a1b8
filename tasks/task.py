"""The task interface: sample, solve, parse, check, and draw by the million.

A sequence is prompt + chain + answer, plus EOS when encoded. format="direct" omits the chain.
format="tagged" turns it into labels: the model reads marker and prompt and labels each token;
nothing is fed back. format="online" feeds each label back before the next token.

A new task subclasses `Task` and needs a name, its tokens, its longest sequence, `sample_prompt` and
`solve`; for millions of sequences, a compiled `draw_batch`.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import Any, ClassVar, Self

import numpy as np

from common import UserError, construct
from tasks.sequences import EOS, EOS_ID, PAD, Example, SequenceSet, Vocabulary

FORMATS = ("cot", "direct", "tagged", "online")
LABELLED = ("tagged", "online")
SPLITS = ("train", "validation", "test")
MAX_SIZE = 100_000
MAX_LEN = 2**20  # every row of a data set is as wide as the longest


class Task(ABC):
    """A generator of sequences of one size.

    Subclasses store each constructor parameter as an attribute of the same name; `parameters` reads
    them to identify data sets. Bad values raise UserError or ValueError. `check_defaults` are
    parameters for checking sequences from elsewhere. `formats` lists what the task supports:
    "tagged" and "online" need a label for each prompt token; `max_len` is then the input's.

    `capacity` makes one model measurable at several sizes: the task draws sequences of `size` with
    the token ids of size `capacity`, and a model has the vocabulary and positions of `at_capacity`.
    Tokens of a smaller size must be tokens of a larger one too. A constructor that accepts
    `capacity` passes it on.
    """

    name: ClassVar[str]
    generator_version: ClassVar[int] = 3  # of stored sets; bump it if a seed gives other sequences
    answer_marker: ClassVar[str] = "<sep>"
    min_size: ClassVar[int] = 1
    check_defaults: ClassVar[dict[str, Any]] = {}
    formats: ClassVar[tuple[str, ...]] = ("cot", "direct")
    kind_names: ClassVar[tuple[str, ...]] = ()  # of `kinds`

    def __init__(self, size: int, format: str = "cot", capacity: int | None = None):
        self.size = self.whole_number("size", size, self.min_size, MAX_SIZE)
        self.format = self.one_of("format", format, self.formats)
        self.capacity = capacity
        if capacity is not None:
            self.capacity = self.whole_number("capacity", capacity, self.size, MAX_SIZE)
        self.largest_size = self.capacity or self.size
        self.labelled = self.format in LABELLED

    # What a new task provides

    @property
    @abstractmethod
    def own_tokens(self) -> list[str]:
        """All tokens of the task but PAD and EOS, in a fixed order."""

    @property
    @abstractmethod
    def max_len(self) -> int:
        """Tokens of the longest prompt + chain + answer in this format, without EOS."""

    @property
    def line_ends(self) -> list[str]:
        """The tokens that end the prompt or a line of the chain (default: `answer_marker`)."""
        return [self.answer_marker]

    @property
    def longest_lines(self) -> tuple[int, int]:
        """The most tokens, end included, of a prompt and of a line of the chain (default: all)."""
        return self.max_len, self.max_len

    def sample_prompt(self, rng: random.Random, size: int) -> list[str]:
        """Draw a prompt of `size`, closing marker included; not needed with `draw_batch`."""
        raise NotImplementedError(f"{type(self).__name__} has neither sample_prompt nor draw_batch")

    @abstractmethod
    def solve(self, prompt: list[str]) -> tuple[list[str], list[str]]:
        """The whole chain (whatever the format) and the answer of a well-formed prompt."""

    # Defaults

    def check_prompt(self, prompt: list[str]) -> str | None:
        """Why `prompt` is not one of this task and size, or None."""
        return None

    def complete(self, prompt: list[str]) -> Example:
        """The whole sequence of a prompt in this task's format."""
        if self.answer_marker not in prompt:
            raise UserError(f"task {self.name}: a prompt has no {self.answer_marker!r}: {prompt!r}")
        chain, answer = self.solve(prompt)
        if chain and (isinstance(chain, str) or chain[-1] != self.answer_marker):
            wanted = f"a list of tokens that ends with {self.answer_marker!r}"
            raise UserError(f"task {self.name}: `solve` returns chain {chain!r}, not {wanted}")
        if self.labelled:
            return Example(prompt, [], chain[:-1])
        return Example(prompt, chain if self.format == "cot" else [], answer)

    def parse(self, tokens: list[str]) -> Example:
        """Split at the first and the last marker; UserError says what is malformed."""
        for position, token in enumerate(tokens):
            if token not in self.vocabulary.index or token in (PAD, EOS):
                raise UserError(f"token {position + 1}, {token!r}, is not a token of {self.name}")
        marker = self.answer_marker
        if marker not in tokens:
            raise UserError(f"no {marker!r} after the prompt")
        first = tokens.index(marker)
        last = len(tokens) - 1 - tokens[::-1].index(marker)
        if last == len(tokens) - 1:
            raise UserError(f"no answer after the last {marker!r}")
        if self.format != "cot" and first != last:
            raise UserError(f"format={self.format} has no chain, but a second marker was found")
        return Example(tokens[: first + 1], tokens[first + 1 : last + 1], tokens[last + 1 :])

    def check(self, tokens: list[str]) -> str | None:
        """Check one sequence with the plain solver: None if valid, else the reason."""
        try:
            example = self.parse(tokens)
            reason = self.check_prompt(example.prompt) or self.check_solution(example)
        except UserError as error:
            return str(error)
        if reason is None and len(tokens) > self.max_len and not self.labelled:
            return f"{len(tokens)} tokens, more than the longest sequence of size {self.size} has"
        return reason

    def check_solution(self, example: Example) -> str | None:
        expected = self.complete(example.prompt)
        pairs = zip_longest(example.chain, expected.chain, fillvalue="missing")
        for number, (given, right) in enumerate(pairs, start=1):
            if given != right:
                return f"chain token {number} is {given}, not {right}"
        if example.answer != expected.answer:
            return f"the answer is {' '.join(expected.answer)}, not {' '.join(example.answer)}"
        return None

    def dependencies(self, example: Example) -> list[list[int]]:
        """The positions in `example.tokens`, from 0, that each token after the prompt needs
        (format="cot"); structural tokens need none. By default, all earlier tokens."""
        return [list(range(i)) for i in range(len(example.prompt), len(example.tokens))]

    def training_mixture(self) -> dict[int, float]:
        """The share of each size among training sequences."""
        return {self.size: 1.0}

    def kinds(self, sequences: SequenceSet) -> np.ndarray | None:
        """(N,): the kind, 0 .. 7, of N sequences of one size; None if all are alike. Where a kind
        has too few distinct prompts, `sampling.draw_sets` keeps the others in proportion, so
        answers stay balanced. Within a kind, `draw` must be uniform over prompts."""
        return None

    def extract_answer(self, generated: list[str]) -> list[str] | None:
        """The tokens between the last answer marker (or the start) and EOS; None without EOS."""
        if EOS not in generated:
            return None
        text = generated[: generated.index(EOS)]
        if self.answer_marker in text:
            text = text[len(text) - text[::-1].index(self.answer_marker) :]
        return text

    def draw_batch(self, seed: int, stream: int, first: int, count: int, size: int) -> SequenceSet:
        """Like `draw`; the default calls `sample_prompt` for each sequence."""
        examples = []
        for index in range(first, first + count):
            digest = hashlib.sha256(f"{seed} {stream} {size} {index}".encode()).digest()
            rng = random.Random(int.from_bytes(digest[:16], "big"))
            examples.append(self.complete(self.sample_prompt(rng, size)))
        return self.encode(examples)

    def state_bits(self) -> float | tuple[float, float]:
        """Bits a state must hold after a prompt of the task's size: exact, or lower and upper
        bounds.

        log2 of the number of distinct correct continuations; with labels, of the ways to label the
        rest, at the token with the most. The default knows only the alphabet.
        """
        return 0.0, self.max_len * math.log2(len(self.vocabulary))

    # What every task shares

    def draw(
        self, seed: int, stream: int, first: int, count: int, size: int | None = None
    ) -> SequenceSet:
        """Draw candidates `first` .. `first + count - 1` of a random stream. Candidate i depends
        only on (seed, stream, size, i), so calls can be split. `size` defaults to the task's."""
        return self.draw_batch(seed, stream, first, count, self.size if size is None else size)

    @property
    def parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def with_parameters(self, **changes: Any) -> Self:
        return type(self)(**{**self.parameters, **changes})

    @cached_property
    def at_capacity(self) -> Task:
        """The task of size `capacity`, whose vocabulary and `max_len` a model takes."""
        if self.capacity is None:
            return self
        return self.with_parameters(size=self.capacity, capacity=None)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        largest = self.at_capacity
        return Vocabulary(self.own_tokens) if largest is self else largest.vocabulary

    def require_room_for(self, measured: Task) -> None:
        """Raise UserError unless a model for this task can read sequences of `measured`."""
        reason = "a different vocabulary from the model's"
        if measured.vocabulary.tokens == self.vocabulary.tokens:
            if self.format != measured.format and (self.labelled or measured.labelled):
                raise UserError(
                    f"format={measured.format}: the model was trained with {self.format}"
                )
            if measured.max_len <= self.at_capacity.max_len:
                return
            reason = f"{measured.max_len} positions, the model has {self.at_capacity.max_len}"
        advice = "evaluate at the settings of training"
        larger = measured.name == self.name and measured.size > self.largest_size
        if "capacity" in self.parameters and larger:
            advice = "train with task.capacity at least the largest size you evaluate"
        raise UserError(f"task {measured.name}: size={measured.size} needs {reason}; {advice}")

    def empty(self, count: int) -> SequenceSet:
        tokens = np.zeros((count, self.max_len + 1), self.vocabulary.dtype)
        lengths, prompt_lengths = np.zeros((2, count), np.int32)
        labels = np.zeros_like(tokens) if self.labelled else None
        return SequenceSet(tokens, lengths, prompt_lengths, labels)

    def join(self, prompt: np.ndarray, chain: np.ndarray | None, answer: np.ndarray) -> SequenceSet:
        """N sequences of one length from ids of prompt (N, n), chain (N, k) or None, both without
        markers, and answer (N, a).

        With format="tagged", `chain` holds the labels, and sequences start with the marker: without
        a start token, models with only rotary positions did not learn the second label of a word
        problem. With format="online", each label but the last is also the next token, and labelled
        by the marker.
        """
        marker = self.vocabulary.index[self.answer_marker]
        if self.format == "online" and chain is not None:
            prompt, chain = _alternating(prompt, chain), _alternating(chain, marker)
        middle: list[Any] = [] if chain is None or self.format == "direct" else [chain, marker]
        parts: list[Any] = [marker, prompt] if self.labelled else [prompt, marker, *middle, answer]
        out, at = self.empty(len(prompt)), 0
        for part in (*parts, EOS_ID):
            columns = 1 if isinstance(part, int) else part.shape[1]
            out.tokens[:, at : at + columns] = part
            at += columns
        out.lengths[:] = at
        out.prompt_lengths[:] = 2 if self.labelled else prompt.shape[1] + 1
        if out.labels is not None and chain is not None:
            out.labels[:, 2 : 2 + chain.shape[1]] = chain
        return out

    def encode(self, examples: list[Example]) -> SequenceSet:
        """Encode sequences, with EOS; ValueError for one longer than `max_len`."""
        width = self.max_len + 1
        out = self.empty(len(examples))
        for row, example in enumerate(examples):
            tokens, labels = example.tokens, self.vocabulary.encode(example.answer)
            if self.labelled:
                tokens = [self.answer_marker, *example.prompt[:-1]]
            ids = self.vocabulary.encode([*tokens, EOS])
            if self.format == "online":
                fed_back = _alternating(ids[None, 1:-1], labels)[0]
                ids, labels = np.r_[ids[0], fed_back, EOS_ID], _alternating(labels[None], ids[0])[0]
            if len(ids) > width:
                raise ValueError(
                    f"task {self.name}: a sequence has {len(ids) - 1} tokens, more than "
                    f"max_len={self.max_len}"
                )
            out.tokens[row, : len(ids)] = ids
            out.lengths[row] = len(ids)
            out.prompt_lengths[row] = 2 if self.labelled else len(example.prompt)
            if out.labels is not None:
                out.labels[row, 2 : len(ids)] = labels
        return out

    def decode(self, sequences: SequenceSet, row: int) -> Example:
        length = sequences.lengths[row]
        tokens = self.vocabulary.decode(sequences.tokens[row, : length - 1])
        if sequences.labels is not None:
            labels = self.vocabulary.decode(sequences.labels[row, 2:length])
            every = 2 if self.format == "online" else 1
            tokens = [*tokens[1::every], self.answer_marker, *labels[::every]]
        return self.parse(tokens)

    def whole_number(self, key: str, value: Any, least: int, most: int | None = None) -> int:
        """`value` if it is an integer in range, else UserError."""
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise UserError(f"task {self.name}: {key}={value!r} must be an integer")
        if value < least:
            raise UserError(f"task {self.name}: {key}={value} must be at least {least}")
        if most is not None and value > most:
            raise UserError(f"task {self.name}: {key}={value} must be at most {most:,}")
        return int(value)

    def one_of(self, key: str, value: Any, choices: Collection[str]) -> str:
        if value not in choices:
            known = ", ".join(choices)
            raise UserError(f"task {self.name}: {key}={value!r} must be one of {known}")
        return str(value)


def build_task(settings: Mapping[str, Any]) -> Task:
    """The task of class `_target_` with the other `settings` as parameters, ignoring `name` and
    a null `capacity`. UserError for a bad name or value."""
    given = {k: v for k, v in settings.items() if k != "name" and (k, v) != ("capacity", None)}
    try:
        task: Task = construct(Task, given, "task")  # type: ignore[type-abstract]
        longest, _ = task.at_capacity.max_len, task.vocabulary
    except ValueError as error:
        raise UserError(f"task: {error}") from error
    if longest > MAX_LEN:
        raise UserError(
            f"task {task.name}: size={task.largest_size} has sequences of {longest:,} tokens, more "
            f"than the {MAX_LEN:,} allowed"
        )
    return task


def _alternating(first: np.ndarray, second: Any) -> np.ndarray:
    """Ids f1 s1 f2 s2 .. fn of `first` (N, n) and `second`, (N, n) or one id; (N, 2n - 1)."""
    out = np.empty((len(first), 2 * first.shape[1]), first.dtype)
    out[:, ::2], out[:, 1::2] = first, second
    return out[:, :-1]


def misplaced(tokens: Sequence[str], allowed: Collection[str], expected: str) -> str | None:
    """Names the first token that is not `allowed`, and what is `expected` there."""
    for position, token in enumerate(tokens, start=1):
        if token not in allowed:
            return f"token {position} is {token!r}, where {expected} should be"
    return None


def in_proportion(sizes: range) -> dict[int, float]:
    total = sum(sizes)
    return {size: size / total for size in sizes}
