"""Softmax attention to a token's own line and the line before it."""

from torch import Tensor

from models.last_lines import LastLines
from tests.models.reference.heads import softmax_mix


def seen(mixer: LastLines, ends: list[bool], i: int) -> list[int]:
    """The positions that token i attends to; ends[j] says that token j ends a line."""
    line = [sum(ends[:j]) for j in range(i + 1)]
    block = mixer.block_size
    return [
        j
        for j in range(i + 1)
        if (line[j] >= line[i] - 1 and i - j < mixer.window) or (j < mixer.kept and line[j] == 0)
        if i - j < block or j % block == block - 1
    ]


def mix(mixer: LastLines, x: Tensor, ends: list[bool] | None = None) -> Tensor:
    """x (B, T, D) to (B, T, D); `ends` are those of every row."""
    ends = [False] * x.shape[1] if ends is None else ends
    return softmax_mix(mixer, x, lambda i: [j + 1 for j in seen(mixer, ends, i - 1)])
