"""Softmax attention over all earlier tokens."""

from torch import Tensor

from models.standard import StandardAttention
from tests.models.reference.attention import standard_set
from tests.models.reference.heads import softmax_mix


def mix(mixer: StandardAttention, x: Tensor) -> Tensor:
    return softmax_mix(mixer, x, standard_set)
