"""Causal attention on packed sequences on a CPU: no padding and no T x T tensor.

Processes one sequence and head at a time, in float32 buffers (width, length), zero-padded to
multiples of TILE and KEY_LANES. Queries go four at a time, so each loaded key is used four
times. Softmax: p_ij = exp(q_i·k_j / √K - lse_i), with an optional bias on the scores (-∞ where a
key is masked) and an optional range of masked keys per query. Linear: p_ij = φ(q_i)·φ(k_j) / n_i, φ
and query scaling as in `models.linear`. Either way y_i = Σ_{j<=i} p_ij v_j. The backward pass
recomputes the weights from lse_i or n_i.
"""

import math

import numpy as np

from models.kernels import Float, exponential, inlined, kernel

KEY_LANES, TILE = 16, 4
TINY = np.finfo(np.float32).tiny


@kernel
def attend(qkv, out, normalisers, offsets, softmax, bias, masked):
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
                n = padded(i + 1)
                _scores(q, i, k, n, bias, masked[first + i : first + T], weights)
                _normalise(weights, i, n, softmax, norm)
                sums(weights, v, n, i, y)
            write(y, first, T, 0, h, out)
            normalisers[first : first + T, h] = norm[:T]


@inlined
def _scores(q, i, k, n, bias, masked, out):
    """out[r, j] = q_(i+r)·k_j + bias[i + r, j] for j < n; -∞ for j in masked[r, 0] .. masked[r, 1]
    - 1. `bias` and `masked` may be empty."""
    products(q, i, k, n, out)
    if bias.shape[0] > 0:
        for r in range(TILE):
            for j in range(n):
                out[r, j] += bias[i + r, j]
    for r in range(min(TILE, len(masked))):
        out[r, masked[r, 0] : masked[r, 1]] = -np.inf


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
def attend_backward(qkv, out, gradient, normalisers, result, offsets, softmax, bias, masked):
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
            _start(y, dy, normalisers, first, T, h, delta, norm, dk, dv)
            for i in range(0, T, TILE):
                n = padded(i + 1)
                _scores(q, i, k, n, bias, masked[first + i : first + T], weights)
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
def _start(y, dy, normalisers, first, length, head, delta, norm, dk, dv):
    """Set delta_t = y_t·dy_t, norm_t to the stored normaliser, dk and dv to 0."""
    end = padded(length)
    delta[:end] = 0
    norm[:end] = 1
    for a in range(y.shape[0]):
        for t in range(end):
            delta[t] += y[a, t] * dy[a, t]
            dk[a, t] = 0
            dv[a, t] = 0
    norm[:length] = normalisers[first : first + length, head]


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
    return qkv.shape[2], (qkv.shape[3] + TILE - 1) // TILE * TILE, padded(lengths.max()), lengths


@inlined
def read(x, first, length, which, head, buffer):
    """buffer[a, t] = x[first + t, which, head, a], zeros beyond."""
    width, end = x.shape[3], padded(length)
    buffer[:width, :length] = x[first : first + length, which, head].T
    buffer[:width, length:end] = 0
    buffer[width:, :end] = 0


@inlined
def write(buffer, first, length, which, head, x):
    """x[first + t, which, head, a] = buffer[a, t]."""
    x[first : first + length, which, head] = buffer[: x.shape[3], :length].T


@inlined
def prepare(q, k, length, width, softmax, top):
    """Scale queries by 1/√K, or apply the feature map to queries and keys; `top` is scratch."""
    end = padded(length)
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


@inlined
def padded(length):
    return (length + KEY_LANES - 1) // KEY_LANES * KEY_LANES


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
