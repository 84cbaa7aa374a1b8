"""Sliding-window attention (Beltagy et al. 2020, arXiv 2004.05150, section 3.1)."""

from typing import Any

from pydantic import PositiveInt

from common import UserError
from models.sparse import SparseAttention


class SlidingWindow(SparseAttention):
    """Token i attends to the last W tokens, i - W < j <= i; W is `window`.

    Sparse attention (Yang et al. 2024, eq. 6) without summary tokens. window=None uses the sparse
    mixer's default, 2^⌊log₂ √max_len⌋.
    """

    has_kernel = True

    def __init__(self, *sizes: Any, window: PositiveInt | None = None, **shared: Any):
        for name in {"block_size", "window_blocks", "summary_tokens"} & shared.keys():
            raise UserError(f"sliding-window attention takes window, not {name}")
        super().__init__(*sizes, block_size=window, summary_tokens=0, **shared)
