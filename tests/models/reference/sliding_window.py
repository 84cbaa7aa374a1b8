"""Softmax attention over the last W tokens."""

from torch import Tensor

from models.sliding_window import SlidingWindow
from tests.models.reference.heads import softmax_mix


def mix(mixer: SlidingWindow, x: Tensor) -> Tensor:
    return softmax_mix(mixer, x, lambda i: range(max(1, i - mixer.window + 1), i + 1))
