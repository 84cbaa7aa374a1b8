"""Softmax attention over a window and the ends of blocks."""

from torch import Tensor

from models.sparse import SparseAttention
from tests.models.reference.attention import sparse_set
from tests.models.reference.heads import softmax_mix


def mix(mixer: SparseAttention, x: Tensor) -> Tensor:
    pattern = mixer.block_size, mixer.window_blocks, mixer.summary_tokens
    return softmax_mix(mixer, x, lambda i: sparse_set(i, *pattern))
