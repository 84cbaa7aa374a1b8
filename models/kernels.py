"""What the compiled functions of a CPU share: the decorator, and threads over sequences."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from models.packing import Packing
from tasks import kernels as kernel_cache


def kernel(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile ``function`` at its first call, and cache it (`kernel_cache`).

    Sums may be reordered, or nothing would run in vectors; NaN and infinity keep their meaning.
    ``options`` are those of `numba.njit`.
    """
    fastmath = {"contract", "reassoc", "nsz"}
    return kernel_cache.kernel(function, error_model="numpy", fastmath=fastmath, **options)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A `kernel` that becomes a part of each kernel that calls it.

    A call would find, in the process that compiles, the machine code of the function by itself, and
    in one that loads from the cache the caller's own copy, whose sums may run in another order: the
    first process on a machine would round differently from all later ones.
    """
    return kernel(function, inline="always")


def in_threads(work: Callable[[np.ndarray], None], packing: Packing) -> None:
    """Call `work` on the offsets of some of the sequences, in as many threads as PyTorch uses."""
    offsets, threads = packing.offsets, torch.get_num_threads()
    if threads == 1:
        work(offsets)
        return
    cuts = np.unique(offsets.searchsorted(np.linspace(0, offsets[-1], threads + 1)))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda cut: work(offsets[cut[0] : cut[1] + 1]), pairwise(cuts)))
