"""What recurrent mixers that work on chunks of tokens share."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

# exp of it is 0 in float64 as well; sums of larger numbers would lose digits of the small ones.
LEAST_LOG_DECAY = -800.0


def split(x: Tensor, size: int) -> Tensor:
    """(B, H, T, ...) in chunks (B, H, N, size, ...), filled up with zeros."""
    missing = -x.shape[2] % size
    if missing:
        x = F.pad(x, (0, 0) * (x.dim() - 3) + (0, missing))
    return x.unflatten(2, (-1, size))


class ChunkDecays:
    """Products of decays within chunks, one number a token, from their logarithms (M, C).

    There are n writes a token.
    to_writes (M, Cn, Cn), to_queries (M, C, Cn): from after write j to write or query i, 1 where j
    is later; writes_from_start (M, Cn, 1), queries_from_start (M, C, 1): from before the chunk;
    to_end (M, Cn, 1): from after a write to the chunk's end; whole (M, 1, 1).
    Logarithms are summed in float64: differences of large sums would lose the small ones.
    """

    def __init__(self, log_decay: Tensor, writes: int):
        dtype = log_decay.dtype
        sums = log_decay.clamp(min=LEAST_LOG_DECAY).double().cumsum(1)[..., None]  # (M, C, 1)
        between = (sums - sums.mT).to(dtype).clamp(max=0).exp()  # (M, C, C)
        self.to_queries = repeated(between, writes, 2)
        self.to_writes = repeated(self.to_queries, writes, 1)
        self.queries_from_start = sums.to(dtype).exp()
        self.writes_from_start = repeated(self.queries_from_start, writes, 1)
        self.to_end = repeated((sums[:, -1:] - sums).to(dtype).exp(), writes, 1)
        self.whole = self.queries_from_start[:, -1:]


def repeated(x: Tensor, times: int, dim: int) -> Tensor:
    """Each entry along ``dim`` ``times`` over; once is no copy."""
    return x if times == 1 else x.repeat_interleave(times, dim)
