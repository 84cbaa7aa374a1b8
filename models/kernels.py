"""Shared code of the CPU kernels: the decorator and the exponential."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tasks import kernels

Float = np.float32


def kernel(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile `function` at its first call and cache it; `options` as in `numba.njit`. Sums may be
    reordered for vectorisation; NaN and infinity keep their meaning."""
    fastmath = {"contract", "reassoc", "nsz"}
    return kernels.kernel(function, error_model="numpy", fastmath=fastmath, **options)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A `kernel` inlined into its callers.

    Linked instead, the first process on a machine would run the function's own machine code, and
    later ones the copy cached with the caller, whose sums may be ordered differently.
    """
    return kernel(function, inline="always")


@inlined
def exponential(x):
    """exp(x) for x <= 0 with relative error 5e-7, 0 below -87, in vectorisable operations: x = m ln
    2 + rest, |rest| <= ln 2 / 2, Taylor series of the rest, m into the exponent bits."""
    bounded = Float(-87) if x < Float(-87) else x
    m = np.int32(bounded * Float(1 / math.log(2)) - Float(0.5))  # conversion truncates
    rest = (
        bounded - Float(m) * Float(0.693145751953125) - Float(m) * Float(1.42860677e-6)
    )  # ln 2 in two parts
    power = Float(1 / 720)
    power = power * rest + Float(1 / 120)
    power = power * rest + Float(1 / 24)
    power = power * rest + Float(1 / 6)
    power = power * rest + Float(1 / 2)
    power = power * rest + Float(1)
    power = power * rest + Float(1)
    power *= np.int32((m + np.int32(127)) << np.int32(23)).view(np.float32)
    return Float(0) if x < Float(-87) else power
