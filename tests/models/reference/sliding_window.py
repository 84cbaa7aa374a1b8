"""Softmax attention over the last W tokens."""

from torch import Tensor

from models.sliding_window import SlidingWindow
from tests.models.reference.attention import rotated, softmax_attention
from tests.models.reference.heads import affine, joined, projected


def mix(mixer: SlidingWindow, x: Tensor) -> Tensor:
    """x (B, T, D) to (B, T, D)."""
    q, k, v = projected(mixer, x)
    if mixer.position == "rope":
        q, k = rotated(q), rotated(k)
    y = softmax_attention(q, k, v, lambda i: range(max(1, i - mixer.window + 1), i + 1))
    return affine(mixer.out, joined(y))
