"""Softmax attention to a token's own line and the line before it."""

from torch import Tensor

from models.last_lines import LastLines
from tests.models.reference.heads import softmax_mix


def seen(ends: list[bool], span: int, i: int) -> list[int]:
    """The positions that token i attends to; ends[j] says that token j ends a line."""
    line = [sum(ends[:j]) for j in range(i + 1)]
    return [j for j in range(i + 1) if line[j] >= line[i] - 1 and i - j < span]


def mix(mixer: LastLines, x: Tensor, ends: list[bool] | None = None) -> Tensor:
    """x (B, T, D) to (B, T, D); `ends` are those of every row."""
    ends = [False] * x.shape[1] if ends is None else ends
    return softmax_mix(mixer, x, lambda i: [j + 1 for j in seen(ends, mixer.window, i - 1)])
