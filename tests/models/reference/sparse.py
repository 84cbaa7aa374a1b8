"""Softmax attention over a window and the ends of blocks."""

from torch import Tensor

from models.sparse import SparseAttention
from tests.models.reference.attention import rotated, softmax_attention, sparse_set
from tests.models.reference.heads import affine, joined, projected


def mix(mixer: SparseAttention, x: Tensor) -> Tensor:
    """x (B, T, D) to (B, T, D)."""
    pattern = mixer.block_size, mixer.window_blocks, mixer.summary_tokens
    q, k, v = projected(mixer, x)
    if mixer.position == "rope":
        q, k = rotated(q), rotated(k)
    y = softmax_attention(q, k, v, lambda i: sparse_set(i, *pattern))
    return affine(mixer.out, joined(y))
