"""One head of one packed sequence: into buffers whose last axis is time, and back.

Queries are scaled there for softmax; queries and keys become features for linear attention.
"""

from __future__ import annotations

import math

import numpy as np

from models.kernels import inlined
from models.tiles import TILE, Float, exponential, whole


@inlined
def buffers(width, length):
    """Four arrays (width, length)."""
    return (
        np.empty((width, length), Float),
        np.empty((width, length), Float),
        np.empty((width, length), Float),
        np.empty((width, length), Float),
    )


@inlined
def sizes(qkv, offsets):
    """Heads; the buffers' width, K rounded up to whole tiles, and length; all lengths."""
    lengths = offsets[1:] - offsets[:-1]
    return qkv.shape[2], (qkv.shape[3] + TILE - 1) // TILE * TILE, whole(lengths.max()), lengths


@inlined
def read(x, first, length, which, head, buffer):
    """buffer[a, t] = x[first + t, which, head, a], zeros beyond."""
    width, end = x.shape[3], whole(length)
    for t in range(length):
        for a in range(width):
            buffer[a, t] = x[first + t, which, head, a]
    for a in range(buffer.shape[0]):
        for t in range(length if a < width else 0, end):
            buffer[a, t] = 0


@inlined
def write(buffer, first, length, which, head, x):
    """x[first + t, which, head, a] = buffer[a, t]."""
    for t in range(length):
        for a in range(x.shape[3]):
            x[first + t, which, head, a] = buffer[a, t]


@inlined
def prepare(q, k, length, width, softmax, top):
    """Queries divided by √K, or the features of queries and keys."""
    end = whole(length)
    if softmax:
        scale = Float(1 / math.sqrt(width))
        for a in range(width):
            for t in range(end):
                q[a, t] *= scale
        return
    top[:end] = -np.inf
    for a in range(width):
        for t in range(end):
            top[t] = max(top[t], q[a, t])
    for a in range(width):
        for t in range(end):
            q[a, t] = exponential(min(q[a, t], Float(0)) - min(top[t], Float(0))) + max(
                q[a, t], Float(0)
            )
            k[a, t] = exponential(min(k[a, t], Float(0))) + max(k[a, t], Float(0))
        for t in range(length, end):
            q[a, t] = k[a, t] = 0


@inlined
def prepare_gradient(q, k, dq, dk, length, width, softmax):
    """From the gradients of what `prepare` made, those of queries and keys."""
    scale = Float(1 / math.sqrt(width))
    for a in range(width):
        for t in range(length):
            if softmax:
                dq[a, t] *= scale
            else:  # φ' is 1 where φ > 1, else φ
                dq[a, t] *= min(q[a, t], Float(1))
                dk[a, t] *= min(k[a, t], Float(1))
