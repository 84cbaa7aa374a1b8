"""Recurrent states of packed sequences on a CPU: no padding and no chunks.

One sequence and head at a time, with a K x V state in cache, columns zero-padded to whole vectors.
With narrow heads, chunks are slower, since their products are small: a training step (D = 32, 4
heads, 3 layers, batch 64, one core) takes 1.4 to 1.7 times as long, in GLA 3.1 times. The backward
pass reruns the recurrence and stores the state before every write.
"""

import numpy as np

from models.kernels import Float, inlined, kernel

STATE_LANES = 8


@kernel
def recur(q, k, v, beta, decay, y, offsets):
    """Write y (N, H, K) of `models.packing.PackedRecurrence`; `decay` is exp(log_decay), and empty
    arrays stand for None."""
    writes, heads, width = k.shape[1], k.shape[2], k.shape[3]
    columns = (width + STATE_LANES - 1) // STATE_LANES * STATE_LANES
    state = np.empty((width, columns), Float)
    key, u = np.zeros(width, Float), np.zeros(columns, Float)
    for b in range(len(offsets) - 1):
        for h in range(heads):
            state[:] = 0
            for t in range(offsets[b], offsets[b + 1]):
                _decay_state(state, decay, t, h, width)
                for j in range(writes):
                    _load(k[t, j, h], key)
                    _load(v[t, j, h], u)
                    if beta.shape[0] > 0:
                        _read(state, key, Float(-1), u)
                        _scaled(u, beta[t, j, h], u)
                    _write(state, key, Float(1), u, state)
                _load(q[t, h], key)
                u[:] = 0
                _read(state, key, Float(1), u)
                y[t, h] = u[:width]


@kernel
def recur_backward(q, k, v, beta, decay, dy, dq, dk, dv, dbeta, ddecay, offsets):
    """Gradients of q, k, v, beta and log decay."""
    writes, heads, width = k.shape[1], k.shape[2], k.shape[3]
    columns = (width + STATE_LANES - 1) // STATE_LANES * STATE_LANES
    longest = (offsets[1:] - offsets[:-1]).max()
    states = np.empty((longest * writes + 1, width, columns), Float)  # before every write
    residual = np.zeros((longest * writes, columns), Float)  # v, or v - S^T k
    dstate = np.empty((width, columns), Float)
    by_row = np.zeros(width, Float), np.zeros(width, Float)
    by_column = np.zeros(columns, Float), np.zeros(columns, Float), np.zeros(columns, Float)
    buffers = dstate, by_row, by_column  # allocated once: per head it costs 2 % of the time
    for b in range(len(offsets) - 1):
        first, end = offsets[b], offsets[b + 1]
        for h in range(heads):
            _recompute(k, v, beta, decay, first, end, h, states, residual, buffers)
            given, gradients = (q, k, beta, decay, dy), (dq, dk, dv, dbeta, ddecay)
            _backward(given, gradients, first, end, h, states, residual, buffers)


@inlined
def _recompute(k, v, beta, decay, first, end, h, states, residual, buffers):
    """Rerun the forward pass of one sequence, storing states and residuals."""
    writes, width = k.shape[1], k.shape[3]
    key, u = buffers[1][0], buffers[2][0]
    states[0] = 0
    for w in range((end - first) * writes):
        t, j = first + w // writes, w % writes
        if j == 0:
            _decay_state(states[w], decay, t, h, width)
        _load(k[t, j, h], key)
        _load(v[t, j, h], residual[w])
        _scaled(residual[w], Float(1), u)
        if beta.shape[0] > 0:
            _read(states[w], key, Float(-1), residual[w])
            _scaled(residual[w], beta[t, j, h], u)
        _write(states[w], key, Float(1), u, states[w + 1])


@inlined
def _backward(given, gradients, first, end, h, states, residual, buffers):
    """Gradients of one sequence, from the last write back."""
    q, k, beta, decay, dy = given
    dq, dk, dv, dbeta, ddecay = gradients
    dstate, (key, by_row), (u, du, dout) = buffers
    writes, width = k.shape[1], k.shape[3]
    dstate[:] = 0
    for w in range((end - first) * writes - 1, -1, -1):
        t, j = first + w // writes, w % writes
        strength = beta[t, j, h] if beta.shape[0] > 0 else Float(1)
        _load(k[t, j, h], key)
        _scaled(residual[w], strength, u)
        if j == writes - 1:
            _load(dy[t, h], dout)
            _read_backward(states[w], key, u, q[t, h], dout, by_row, dq[t, h], dstate)
        du[:] = 0
        _read(dstate, key, Float(1), du)
        _dots(dstate, u, by_row)
        dk[t, j, h] = by_row[:width]
        if beta.shape[0] > 0:
            dbeta[t, j, h] = _dot(du, residual[w])
            _scaled(du, strength, du)
            _correct_backward(states[w], key, du, by_row, dk[t, j, h], dstate)
        dv[t, j, h] = du[:width]
        if j == 0 and decay.shape[0] > 0:
            _decay_gradient(states[w], dstate, ddecay[t, h], decay[t, h], width)
            _decay_state(dstate, decay, t, h, width)


@inlined
def _read_backward(state, key, u, q, dout, by_row, dq, dstate):
    """Gradients of y = (S + k u^T)^T q: set dq, add to dstate."""
    _dots(state, dout, by_row)
    both = _dot(u, dout)
    for a in range(len(dq)):
        dq[a] = by_row[a] + key[a] * both
    _load(q, by_row)
    _write(dstate, by_row, Float(1), dout, dstate)


@inlined
def _correct_backward(state, key, du, by_row, dk, dstate):
    """Gradients of v - S^T k: subtract from dk and dstate."""
    _dots(state, du, by_row)
    for a in range(len(dk)):
        dk[a] -= by_row[a]
    _write(dstate, key, Float(-1), du, dstate)


@inlined
def _load(x, buffer):
    for a in range(len(x)):
        buffer[a] = x[a]


@inlined
def _scaled(x, factor, out):
    for c in range(len(x)):
        out[c] = factor * x[c]


@inlined
def _dot(x, y):
    total = Float(0)
    for c in range(len(x)):
        total += x[c] * y[c]
    return total


@inlined
def _decay_state(state, decay, t, h, width):
    """Scale row a by decay[t, h, a], or all rows by the single decay, if any."""
    if decay.shape[0] == 0:
        return
    for a in range(width):
        kept = decay[t, h, a if decay.shape[2] > 1 else 0]
        for c in range(state.shape[1]):
            state[a, c] *= kept


@inlined
def _decay_gradient(state, dstate, ddecay, decay, width):
    """Gradient of log decays, for a state just scaled by them."""
    ddecay[:] = 0
    for a in range(width):
        total = Float(0)
        for c in range(state.shape[1]):
            total += state[a, c] * dstate[a, c]
        ddecay[a if len(decay) > 1 else 0] += total


@inlined
def _read(state, key, sign, out):
    """out += sign S^T k."""
    for a in range(state.shape[0]):
        k = sign * key[a]
        for c in range(state.shape[1]):
            out[c] += k * state[a, c]


@inlined
def _write(state, key, sign, u, out):
    """out = S + sign k u^T."""
    for a in range(state.shape[0]):
        k = sign * key[a]
        for c in range(state.shape[1]):
            out[a, c] = state[a, c] + k * u[c]


@inlined
def _dots(state, u, out):
    """out = S u."""
    for a in range(state.shape[0]):
        out[a] = _dot(state[a], u)
