"""Linear attention with φ = elu + 1."""

from torch import Tensor

from models.linear import LinearAttention
from tests.models.reference.attention import linear_attention
from tests.models.reference.heads import affine, joined, projected


def mix(mixer: LinearAttention, x: Tensor) -> Tensor:
    q, k, v = projected(mixer, x)
    return affine(mixer.out, joined(linear_attention(q, k, v, mixer.position)))
