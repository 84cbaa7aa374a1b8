"""Shared parts of the CPU kernels: the decorator, and float32 arithmetic on tiles.

Arrays are (width, length), time last; length is a multiple of LANES, width of TILE. Queries are
processed four at a time, so each loaded key is used four times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tasks import kernels

LANES = 16
TILE = 4
TINY = np.finfo(np.float32).tiny
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
def whole(length):
    return (length + LANES - 1) // LANES * LANES


@inlined
def products(c, i, rows, n, out):
    """out[r, j] = Σ_a c[a, i + r] rows[a, j] for j < n."""
    for a in range(0, rows.shape[0], TILE):
        c00, c01, c02, c03 = c[a, i], c[a + 1, i], c[a + 2, i], c[a + 3, i]
        c10, c11, c12, c13 = c[a, i + 1], c[a + 1, i + 1], c[a + 2, i + 1], c[a + 3, i + 1]
        c20, c21, c22, c23 = c[a, i + 2], c[a + 1, i + 2], c[a + 2, i + 2], c[a + 3, i + 2]
        c30, c31, c32, c33 = c[a, i + 3], c[a + 1, i + 3], c[a + 2, i + 3], c[a + 3, i + 3]
        for j in range(n):
            x0, x1, x2, x3 = rows[a, j], rows[a + 1, j], rows[a + 2, j], rows[a + 3, j]
            y0 = c00 * x0 + c01 * x1 + c02 * x2 + c03 * x3
            y1 = c10 * x0 + c11 * x1 + c12 * x2 + c13 * x3
            y2 = c20 * x0 + c21 * x1 + c22 * x2 + c23 * x3
            y3 = c30 * x0 + c31 * x1 + c32 * x2 + c33 * x3
            if a > 0:
                y0, y1, y2, y3 = y0 + out[0, j], y1 + out[1, j], y2 + out[2, j], y3 + out[3, j]
            out[0, j], out[1, j], out[2, j], out[3, j] = y0, y1, y2, y3


@inlined
def add_rows(bias, i, n, out):
    """out[r, j] += bias[i + r, j] for j < n."""
    for r in range(TILE):
        for j in range(n):
            out[r, j] += bias[i + r, j]


@inlined
def add_products(c, i, w, n, out):
    """out[a, j] += Σ_r c[a, i + r] w[r, j] for j < n."""
    for a in range(0, out.shape[0], TILE):
        c00, c01, c02, c03 = c[a, i], c[a + 1, i], c[a + 2, i], c[a + 3, i]
        c10, c11, c12, c13 = c[a, i + 1], c[a + 1, i + 1], c[a + 2, i + 1], c[a + 3, i + 1]
        c20, c21, c22, c23 = c[a, i + 2], c[a + 1, i + 2], c[a + 2, i + 2], c[a + 3, i + 2]
        c30, c31, c32, c33 = c[a, i + 3], c[a + 1, i + 3], c[a + 2, i + 3], c[a + 3, i + 3]
        for j in range(n):
            w0, w1, w2, w3 = w[0, j], w[1, j], w[2, j], w[3, j]
            out[a, j] += c00 * w0 + c10 * w1 + c20 * w2 + c30 * w3
            out[a + 1, j] += c01 * w0 + c11 * w1 + c21 * w2 + c31 * w3
            out[a + 2, j] += c02 * w0 + c12 * w1 + c22 * w2 + c32 * w3
            out[a + 3, j] += c03 * w0 + c13 * w1 + c23 * w2 + c33 * w3


@inlined
def sums(w, rows, n, i, out):
    """out[a, i + r] = Σ_{j<n} w[r, j] rows[a, j]."""
    for a in range(0, rows.shape[0], TILE):
        s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = Float(0)
        s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = Float(0)
        for j in range(n):
            w0, w1, w2, w3 = w[0, j], w[1, j], w[2, j], w[3, j]
            x0, x1, x2, x3 = rows[a, j], rows[a + 1, j], rows[a + 2, j], rows[a + 3, j]
            s00, s01, s02, s03 = s00 + w0 * x0, s01 + w0 * x1, s02 + w0 * x2, s03 + w0 * x3
            s10, s11, s12, s13 = s10 + w1 * x0, s11 + w1 * x1, s12 + w1 * x2, s13 + w1 * x3
            s20, s21, s22, s23 = s20 + w2 * x0, s21 + w2 * x1, s22 + w2 * x2, s23 + w2 * x3
            s30, s31, s32, s33 = s30 + w3 * x0, s31 + w3 * x1, s32 + w3 * x2, s33 + w3 * x3
        out[a, i], out[a + 1, i], out[a + 2, i], out[a + 3, i] = s00, s01, s02, s03
        out[a, i + 1], out[a + 1, i + 1], out[a + 2, i + 1], out[a + 3, i + 1] = s10, s11, s12, s13
        out[a, i + 2], out[a + 1, i + 2], out[a + 2, i + 2], out[a + 3, i + 2] = s20, s21, s22, s23
        out[a, i + 3], out[a + 1, i + 3], out[a + 2, i + 3], out[a + 3, i + 3] = s30, s31, s32, s33


@inlined
def inverse(total):
    return Float(0) if total < TINY else Float(1) / total


@inlined
def largest(x, r, n):
    top = x[r, 0]
    for j in range(1, n):
        top = max(top, x[r, j])
    return top


@inlined
def cut(x, r, n, end):
    """Zero x[r] from n to end; return the sum of the rest."""
    total = Float(0)
    for j in range(end):
        x[r, j] = x[r, j] if j < n else Float(0)
        total += x[r, j]
    return total


@inlined
def exponentials(x, r, shift, n, end):
    """x[r] = exp(x[r] - shift) up to n, 0 up to end; return their sum."""
    total = Float(0)
    for j in range(end):
        power = exponential(x[r, j] - shift)
        x[r, j] = power if j < n else Float(0)
        total += x[r, j]
    return total


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
