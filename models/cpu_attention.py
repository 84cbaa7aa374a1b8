"""Causal attention on packed sequences on a CPU: no padding and no T x T tensor.

Processes one sequence and head at a time, in buffers with time as the last axis, zero-padded to
whole vectors (`models.kernels`). Softmax: p_ij = exp(q_i·k_j / √K - lse_i), with an optional bias
on the scores (-∞ where a key is hidden) and an optional first visible key per query. Linear: p_ij =
φ(q_i)·φ(k_j) / n_i, φ and query scaling as in `models.linear`. Either way y_i = Σ_{j<=i} p_ij v_j.
The backward pass recomputes the weights from lse_i or n_i.
"""

from __future__ import annotations

import math

import numpy as np

from models.kernels import (
    TILE,
    Float,
    add_products,
    add_rows,
    cut,
    exponential,
    exponentials,
    inlined,
    inverse,
    kernel,
    largest,
    products,
    sums,
    whole,
)


@kernel
def attend(qkv, out, kept, offsets, softmax, bias, starts):
    """Write y and the normaliser of each query, for qkv (N, 3, H, K)."""
    heads, width, length, lengths = sizes(qkv, offsets)
    q, k, v, y = buffers(width, length)
    weights, norm = np.empty((TILE, length), Float), np.empty(length, Float)
    for b in range(len(lengths)):
        first, T = offsets[b], lengths[b]
        for h in range(heads):
            read(qkv, first, T, 0, h, q)
            read(qkv, first, T, 1, h, k)
            read(qkv, first, T, 2, h, v)
            prepare(q, k, T, qkv.shape[3], softmax, norm)
            for i in range(0, T, TILE):
                n = whole(i + 1)
                products(q, i, k, n, weights)
                if bias.shape[0] > 0:
                    add_rows(bias, i, n, weights)
                if starts.shape[0] > 0:
                    _hide_before(starts[first + i : first + T], weights)
                _normalise(weights, i, n, softmax, norm)
                sums(weights, v, n, i, y)
            write(y, first, T, 0, h, out)
            for t in range(T):
                kept[first + t, h] = norm[t]


@inlined
def _hide_before(starts, scores):
    """Set the scores of keys before starts[r] to -∞ for each of up to TILE queries."""
    for r in range(min(TILE, len(starts))):
        scores[r, : starts[r]] = -np.inf


@inlined
def _normalise(weights, i, n, softmax, norm):
    """Turn TILE rows of scores, from query i on, into weights; store their normalisers."""
    for r in range(TILE):
        total = Float(0)
        if softmax:
            top = largest(weights, r, i + r + 1)
            total = exponentials(weights, r, top, i + r + 1, n)
            norm[i + r] = top + Float(math.log(total))
        else:
            total = cut(weights, r, i + r + 1, n)
            norm[i + r] = total
        share = inverse(total)
        for j in range(n):
            weights[r, j] *= share


@kernel
def attend_backward(qkv, out, gradient, kept, result, offsets, softmax, bias, starts):
    """The gradient of qkv (N, 3, H, K), given that of `out`."""
    heads, width, length, lengths = sizes(qkv, offsets)
    q, k, v, y = buffers(width, length)
    dy, dq, dk, dv = buffers(width, length)
    weights, dscores = np.empty((TILE, length), Float), np.empty((TILE, length), Float)
    delta, norm = np.empty(length, Float), np.empty(length, Float)
    for b in range(len(lengths)):
        first, T = offsets[b], lengths[b]
        for h in range(heads):
            read(qkv, first, T, 0, h, q)
            read(qkv, first, T, 1, h, k)
            read(qkv, first, T, 2, h, v)
            read(out, first, T, 0, h, y)
            read(gradient, first, T, 0, h, dy)
            prepare(q, k, T, qkv.shape[3], softmax, norm)
            _start(y, dy, kept, first, T, h, delta, norm, dk, dv)
            for i in range(0, T, TILE):
                n = whole(i + 1)
                products(q, i, k, n, weights)
                if bias.shape[0] > 0:
                    add_rows(bias, i, n, weights)
                if starts.shape[0] > 0:
                    _hide_before(starts[first + i : first + T], weights)
                products(dy, i, v, n, dscores)
                _score_gradients(weights, dscores, i, n, softmax, delta, norm)
                sums(dscores, k, n, i, dq)
                add_products(q, i, dscores, n, dk)
                add_products(dy, i, weights, n, dv)
            prepare_gradient(q, k, dq, dk, T, qkv.shape[3], softmax)
            write(dq, first, T, 0, h, result)
            write(dk, first, T, 1, h, result)
            write(dv, first, T, 2, h, result)


@inlined
def _start(y, dy, kept, first, length, head, delta, norm, dk, dv):
    """Set delta_t = y_t·dy_t, norm_t to the stored normaliser, dk and dv to 0."""
    end = whole(length)
    delta[:end] = 0
    norm[:end] = 1
    for a in range(y.shape[0]):
        for t in range(end):
            delta[t] += y[a, t] * dy[a, t]
            dk[a, t] = 0
            dv[a, t] = 0
    for t in range(length):
        norm[t] = kept[first + t, head]


@inlined
def _score_gradients(weights, dscores, i, n, softmax, delta, norm):
    """Recompute weights from scores, and turn gradients of weights into those of scores."""
    for r in range(TILE):
        d = delta[i + r]
        if softmax:
            exponentials(weights, r, norm[i + r], i + r + 1, n)
            for j in range(n):
                dscores[r, j] = weights[r, j] * (dscores[r, j] - d)
        else:
            cut(weights, r, i + r + 1, n)
            share = inverse(norm[i + r])
            for j in range(n):
                weights[r, j] *= share
                dscores[r, j] = share * (dscores[r, j] - d)
            cut(dscores, r, i + r + 1, n)


@inlined
def buffers(width, length):
    return (
        np.empty((width, length), Float),
        np.empty((width, length), Float),
        np.empty((width, length), Float),
        np.empty((width, length), Float),
    )


@inlined
def sizes(qkv, offsets):
    """Heads, padded width and length of the buffers, and all lengths."""
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
    """Scale queries by 1/√K, or apply the feature map to queries and keys."""
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
    """Backpropagate through `prepare`."""
    scale = Float(1 / math.sqrt(width))
    for a in range(width):
        for t in range(length):
            if softmax:
                dq[a, t] *= scale
            else:  # φ' is 1 where φ > 1, else φ
                dq[a, t] *= min(q[a, t], Float(1))
                dk[a, t] *= min(k[a, t], Float(1))
