"""Softmax attention over all earlier tokens."""

from torch import Tensor

from models.standard import StandardAttention
from tests.models.reference.attention import rotated, softmax_attention, standard_set
from tests.models.reference.heads import affine, joined, projected


def mix(mixer: StandardAttention, x: Tensor) -> Tensor:
    """x (B, T, D) to (B, T, D)."""
    q, k, v = projected(mixer, x)
    if mixer.position == "rope":
        q, k = rotated(q), rotated(k)
    return affine(mixer.out, joined(softmax_attention(q, k, v, standard_set)))
