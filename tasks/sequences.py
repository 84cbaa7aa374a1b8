"""Sequences: the vocabulary, one example in tokens, a set of encoded ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from common import UserError

PAD = "<pad>"
EOS = "<eos>"
PAD_ID = 0
EOS_ID = 1
MAX_VOCABULARY = 2**16


class Vocabulary:
    """Tokens and ids: padding 0, end of sequence 1, then the task's own `tokens`."""

    def __init__(self, tokens: Iterable[str]):
        self.tokens: tuple[str, ...] = (PAD, EOS, *tokens)
        self.index: dict[str, int] = {token: i for i, token in enumerate(self.tokens)}
        if len(self.index) != len(self.tokens):
            raise ValueError("a vocabulary must not contain a token twice")
        if len(self.tokens) > MAX_VOCABULARY:
            raise UserError(
                f"a vocabulary of {len(self.tokens):,} tokens is too large: ids have 16 bits, "
                f"so it holds at most {MAX_VOCABULARY:,}"
            )
        self.dtype: np.dtype = np.dtype(np.uint8 if len(self.tokens) <= 256 else np.uint16)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, tokens: list[str]) -> np.ndarray:
        try:
            return np.array([self.index[token] for token in tokens], dtype=self.dtype)
        except KeyError as error:
            raise UserError(f"unknown token {error.args[0]!r}, not in the vocabulary") from None

    def decode(self, ids: Iterable[int]) -> list[str]:
        return [self.tokens[int(i)] for i in ids]


@dataclass(frozen=True)
class Example:
    """One sequence in tokens, without EOS.

    `prompt` ends with "=" or "<sep>" (Match3: one token later); `chain` includes its closing
    marker, and is empty for format="direct". With labels, the answer is a label for each token
    before the marker.
    """

    prompt: list[str]
    chain: list[str]
    answer: list[str]

    @property
    def tokens(self) -> list[str]:
        return self.prompt + self.chain + self.answer


@dataclass
class SequenceSet:
    """N encoded sequences.

    tokens: (N, W), W = longest sequence + 1, each row closed by EOS and padded with PAD. lengths:
    (N,) int32, EOS included. prompt_lengths: (N,) int32. labels: (N, W), or None for next-token
    prediction; entry j is the output expected after reading tokens 0 .. j - 1, for
    prompt_lengths <= j < lengths.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    prompt_lengths: np.ndarray
    labels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    def select(self, index: Any) -> SequenceSet:
        return SequenceSet(**{name: array[index] for name, array in self.arrays.items()})

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {name: array for name, array in vars(self).items() if array is not None}

    @property
    def given_lengths(self) -> np.ndarray:
        """The number of given tokens, (N,): the prompt, or everything if labelled."""
        return self.prompt_lengths if self.labels is None else self.lengths - 1

    @property
    def last_tokens(self) -> np.ndarray:
        """The token before EOS of each sequence, (N,): an answer of one token."""
        return self.tokens[np.arange(len(self)), self.lengths - 2]
