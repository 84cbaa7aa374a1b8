"""Sliding-window attention (Beltagy et al. 2020, arXiv 2004.05150, section 3.1)."""

from models.mixer import check_sizes
from models.sparse import SparseAttention


class SlidingWindow(SparseAttention):
    """Token i attends to the last W tokens, i - W < j <= i; W is `window`.

    Sparse attention (Yang et al. 2024, eq. 6) without summary tokens. window=None uses the sparse
    mixer's default, 2^⌊log₂ √max_len⌋.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        max_len: int,
        dropout: float = 0.0,
        position: str = "none",
        window: int | None = None,
        implementation: str = "auto",
        convolution: str = "none",
        convolution_width: int = 4,
    ):
        if window is not None:
            check_sizes(window=window)
        super().__init__(
            dim, num_heads, max_len, dropout, position, block_size=window, summary_tokens=0,
            implementation=implementation, convolution=convolution,
            convolution_width=convolution_width,
        )  # fmt: skip
