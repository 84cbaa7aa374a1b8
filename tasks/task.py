"""The interface of a task: sampling, solving, parsing, checking, and drawing by the million.

A sequence is prompt + chain + answer; the end-of-sequence token is added when it is encoded.
``format="direct"`` leaves the chain out.  ``format="tagged"`` turns it into labels: the model reads
the marker and the prompt and says at each of its tokens the chain's; nothing is fed back to it.
A new task subclasses `Task` and needs a name, the answer marker, its tokens, its longest prompt
and sequence, `sample_prompt` and `solve`.  Everything else has a default; `draw` is worth
overriding with a compiled kernel once millions of sequences are wanted.
"""

from __future__ import annotations

import hashlib
import random
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from common import UserError
from tasks.faults import fault, named, shown
from tasks.parameters import Parameters
from tasks.sequences import EOS, EOS_ID, PAD, PAD_ID, Example, SequenceSet, Vocabulary

__all__ = [
    "EOS",
    "EOS_ID",
    "FORMATS",
    "PAD",
    "PAD_ID",
    "SPLITS",
    "Example",
    "SequenceSet",
    "Task",
    "Vocabulary",
]

FORMATS = ("cot", "direct", "tagged")
SPLITS = ("train", "validation", "test")
MAX_SIZE = 100_000
MAX_LEN = 2**20


class Task(Parameters, ABC):
    """A generator of sequences of one size.

    Subclasses keep every constructor parameter under its own name (see `Parameters`).  Bad values
    raise `UserError`.
    ``check_defaults`` are parameters with which foreign sequences are judged, unless told
    otherwise; ``paper_sizes`` are those that ``build-all`` and ``locality`` go through.
    ``formats`` are those that the task has: "tagged" where every prompt is tokens and a marker, and
    its chain as many tokens and a marker; `max_len` is then the prompt's.

    ``capacity`` makes one model measurable at several sizes.  A task whose constructor takes it
    draws sequences of ``size`` with the token ids of size ``capacity``; what a model needs to
    hold them all, vocabulary and positions, is that of `room`.  Such a constructor sets
    ``self.capacity = self.checked_capacity(capacity)``, and its tokens of a smaller size must be
    tokens of a larger one too.
    """

    answer_marker: ClassVar[str] = "<sep>"
    min_size: ClassVar[int] = 1
    paper_sizes: ClassVar[tuple[int, ...]] = ()
    check_defaults: ClassVar[dict[str, Any]] = {}
    formats: ClassVar[tuple[str, ...]] = ("cot", "direct")
    capacity: int | None = None

    def __init__(self, size: int, format: str = "cot"):
        if not hasattr(self, "name"):
            raise UserError(f"{type(self).__name__}: has no name; write name = ... in the class")
        self.size = self.whole_number("size", size, self.min_size, MAX_SIZE, _SIZE_REASON)
        self.format = self.one_of("format", format, self.formats)

    # What a new task provides

    @property
    @abstractmethod
    def own_tokens(self) -> list[str]:
        """All tokens of the task but PAD and EOS, in a fixed order."""

    @property
    @abstractmethod
    def max_prompt_len(self) -> int:
        """Tokens of the longest prompt, its closing marker included."""

    @property
    @abstractmethod
    def max_len(self) -> int:
        """Tokens of the longest prompt + chain + answer in this format, EOS not counted."""

    @abstractmethod
    def sample_prompt(self, rng: random.Random, size: int) -> list[str]:
        """Draw the prompt of one sequence of ``size``, its closing marker included."""

    @abstractmethod
    def solve(self, prompt: list[str]) -> tuple[list[str], list[str]]:
        """Return the whole chain (whatever the format) and the answer of a well-formed prompt."""

    # What has a default

    def check_prompt(self, prompt: list[str]) -> str | None:
        """Return why ``prompt`` is not one of this task and size, or None."""
        return None

    def sample(self, rng: random.Random, size: int | None = None) -> Example:
        """Draw one sequence, in plain Python: slow, and believed on sight."""
        with named(self.name, "sample_prompt"):
            prompt = self.sample_prompt(rng, self.size if size is None else size)
            whole = self.answer_marker in prompt
        if not whole:
            raise UserError(
                f"task {self.name}: sample_prompt leaves out the marker, {self.answer_marker}"
            )
        return self.complete(prompt)

    def complete(self, prompt: list[str]) -> Example:
        """Return the whole sequence of a prompt in this task's format.

        Raises `UserError` naming the task where `solve` fails on it, or gives no answer.
        """
        with named(self.name, "solve", prompt):
            chain, answer = self.solve(prompt)
        if self.format == "tagged":
            return Example(prompt, [], chain[:-1])
        if not answer:
            raise UserError(fault(self.name, "solve", "gives no answer", prompt))
        return Example(prompt, chain if self.format == "cot" else [], answer)

    def parse(self, tokens: list[str]) -> Example:
        """Split at the first and the last marker; `UserError` says what is malformed."""
        for position, token in enumerate(tokens):
            if token not in self.vocabulary.index or token in (PAD, EOS):
                raise UserError(f"token {position + 1}, {token!r}, is no token of {self.name}")
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
        """Judge one sequence by the plain solver: None when it is valid, else the reason."""
        try:
            example = self.parse(tokens)
            reason = self.check_prompt(example.prompt) or self.check_solution(example)
        except UserError as error:
            return str(error)
        if reason is None and len(tokens) > self.max_len and not self.labelled:
            return f"{len(tokens)} tokens, more than the longest sequence of size {self.size} has"
        return reason

    def check_solution(self, example: Example) -> str | None:
        """Compare chain and answer with those of `solve`."""
        expected = self.complete(example.prompt)
        wrong = first_difference(example.chain, expected.chain)
        if wrong is not None:
            here = describe(example.chain, wrong)
            return f"chain token {wrong + 1} is {here}, not {describe(expected.chain, wrong)}"
        if example.answer != expected.answer:
            given, right = " ".join(example.answer), " ".join(expected.answer)
            return f"the answer is {right}, not {given}"
        return None

    def dependencies(self, example: Example) -> list[list[int]]:
        """For each token after the prompt, the positions in ``example.tokens`` that it needs.

        Positions count from 0; structural tokens need none.  The default says that every token
        needs all that stand before it.
        """
        first = len(example.prompt)
        return [list(range(i)) for i in range(first, len(example.tokens))]

    def chain_steps(self, example: Example) -> list[int]:
        """For each token after the prompt, the number (from 0) of the chain step it belongs to."""
        return list(range(len(example.chain) + len(example.answer)))

    def kind_of(self, example: Example) -> str:
        """Return the kind of instance that a sequence is; accuracy is told for each kind.

        The default knows of one kind, which has no name.
        """
        return ""

    def training_mixture(self) -> dict[int, float]:
        """Return the share of each size among training sequences."""
        return {self.size: 1.0}

    def extract_answer(self, generated: list[str]) -> list[str] | None:
        """Return what stands between the last answer marker (or the start) and EOS.

        None when the generated tokens hold no EOS.
        """
        if EOS not in generated:
            return None
        text = generated[: generated.index(EOS)]
        if self.answer_marker in text:
            text = text[len(text) - text[::-1].index(self.answer_marker) :]
        return text

    def draw(
        self, seed: int, stream: int, first: int, count: int, size: int | None = None
    ) -> SequenceSet:
        """Draw candidates ``first`` .. ``first + count - 1`` of a stream of random numbers.

        Candidate i depends on (seed, stream, size, i) alone, so the same bytes come out whatever
        the split into calls.  This default loops over `sample`.
        """
        size = self.size if size is None else size
        return self.encode(
            [
                self.sample(candidate_rng(seed, stream, size, i), size)
                for i in range(first, first + count)
            ]
        )

    # What every task shares

    @property
    def labelled(self) -> bool:
        """Whether sequences carry labels beside their tokens (``format="tagged"``)."""
        return self.format == "tagged"

    @cached_property
    def room(self) -> Task:
        """The task of size ``capacity``, for whose sequences a model must have room; or itself.

        A model takes ``room.vocabulary`` (also this task's own) and ``room.max_len`` positions.
        """
        if self.capacity is None:
            return self
        return self.with_parameters(size=self.capacity, capacity=None)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the task, or of its `room`."""
        return Vocabulary(self.own_tokens) if self.room is self else self.room.vocabulary

    @property
    def room_size(self) -> int:
        """The size of `room`: ``capacity``, or ``size`` where there is none."""
        return self.size if self.capacity is None else self.capacity

    def checked_capacity(self, capacity: int | None) -> int | None:
        """Return ``capacity`` when it is None or has room for ``size``, else raise `UserError`."""
        if capacity is None:
            return None
        most = self.whole_number("capacity", capacity, self.min_size, MAX_SIZE, _SIZE_REASON)
        if most < self.size:
            raise UserError(
                f"task {self.name}: capacity={capacity} must be at least size={self.size}"
            )
        return most

    def check_bounds(self) -> None:
        """Raise `UserError` when sequences or vocabulary are too large to be worked with."""
        longest = self.room.max_len
        if longest > MAX_LEN:
            raise UserError(
                f"task {self.name}: size={self.room_size} has sequences of up to {longest:,} "
                f"tokens; at most {MAX_LEN:,} are possible, since every row of a data set is as "
                "wide as the longest"
            )
        try:
            len(self.vocabulary)
        except (UserError, ValueError) as error:
            raise UserError(f"task {self.name}: size={self.room_size}: {error}") from None

    def require_room_for(self, measured: Task) -> None:
        """Raise `UserError` unless a model made for this task can read ``measured``'s sequences."""
        if measured.vocabulary.tokens != self.vocabulary.tokens:
            raise UserError(
                f"task {measured.name}: size={measured.size} needs another vocabulary than the "
                f"model's ({len(measured.vocabulary)} tokens, not {len(self.vocabulary)}); train "
                "with task.capacity at least as large as every size to be measured"
            )
        if measured.max_len > self.room.max_len:
            raise UserError(
                f"task {measured.name}: size={measured.size} has sequences of up to "
                f"{measured.max_len} tokens, the model positions for {self.room.max_len}; train "
                "with task.capacity at least as large as every size to be measured"
            )

    def encode(self, examples: list[Example]) -> SequenceSet:
        """Encode sequences, EOS appended; `UserError` for one longer than `max_len`."""
        width = self.max_len + 1
        out = SequenceSet.empty(len(examples), width, self.vocabulary.dtype, self.labelled)
        for row, example in enumerate(examples):
            ids = self._ids([*self._read(example), EOS], example)
            if len(ids) > width:
                raise UserError(
                    f"{self.name} size={self.size}: a sequence has {len(ids) - 1} tokens, "
                    f"more than the longest possible, {self.max_len}"
                )
            out.tokens[row, : len(ids)] = ids
            out.lengths[row] = len(ids)
            out.prompt_lengths[row] = 2 if self.labelled else len(example.prompt)
            if out.labels is not None:
                out.labels[row, 2 : len(ids)] = self._ids(example.answer, example)
        return out

    def decode(self, sequences: SequenceSet, row: int) -> Example:
        """Return row ``row`` of a set as tokens."""
        length = sequences.lengths[row]
        tokens = self.vocabulary.decode(sequences.tokens[row, : length - 1])
        if sequences.labels is not None:
            labels = self.vocabulary.decode(sequences.labels[row, 2:length])
            tokens = [*tokens[1:], self.answer_marker, *labels]
        try:
            return self.parse(tokens)
        except UserError as error:
            raise UserError(f"task {self.name}: {error} in {shown(tokens)}") from None

    def _ids(self, tokens: list[str], example: Example) -> np.ndarray:
        """Return the ids of tokens of ``example``; `UserError` names the method they are from."""
        try:
            return self.vocabulary.encode(tokens)
        except UserError as error:
            own = set(example.prompt) <= self.vocabulary.index.keys()
            method = "solve" if own else "sample_prompt"
            line = fault(self.name, method, str(error), example.prompt)
            raise UserError(f"{line}; `own_tokens` must list every token") from None

    def _read(self, example: Example) -> list[str]:
        """Return what a model reads: the marker stands first where every token has a label."""
        if self.labelled:
            return [self.answer_marker, *example.prompt[:-1]]
        return example.tokens


_SIZE_REASON = "vocabulary and sequences grow with it"


def candidate_rng(seed: int, stream: int, size: int, index: int) -> random.Random:
    """Return the generator of one candidate: the same in every process and on every machine."""
    digest = hashlib.sha256(f"{seed} {stream} {size} {index}".encode()).digest()
    return random.Random(int.from_bytes(digest[:16], "big"))


def first_difference(given: list[str], expected: list[str]) -> int | None:
    """Return the first position at which two token lists differ, or None."""
    for i, (a, b) in enumerate(zip(given, expected, strict=False)):
        if a != b:
            return i
    return None if len(given) == len(expected) else min(len(given), len(expected))


def describe(tokens: list[str], position: int) -> str:
    """Return the token at ``position`` for a message, or say that the list has ended."""
    return repr(tokens[position]) if position < len(tokens) else "missing"
