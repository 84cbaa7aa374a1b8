"""Counter-based random numbers for compiled kernels.

Each candidate has its own generator (splitmix64: Steele, Lea and Flood, OOPSLA 2014), started from
a hash of (seed, stream, size, index), so it does not matter which process or thread draws it. State
is an array of one uint64, since compiled functions cannot rebind a caller's scalar.
"""

import numpy as np

from tasks.kernels import kernel

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)


@kernel
def mix(z):
    """The splitmix64 finaliser, a bijection on uint64."""
    z = (z ^ (z >> _S30)) * _M1
    z = (z ^ (z >> _S27)) * _M2
    return z ^ (z >> _S31)


@kernel
def start(state, seed, stream, size, index):
    """Set `state` (1,) to the start of candidate `index`'s numbers."""
    z = mix(np.uint64(seed) + _GAMMA)
    z = mix((z ^ np.uint64(stream)) + _GAMMA)
    z = mix((z ^ np.uint64(size)) + _GAMMA)
    state[0] = mix((z ^ np.uint64(index)) + _GAMMA)


@kernel
def below(state, n):
    """A number uniform in 0 .. n - 1, for 0 < n < 2**31 (bias below n / 2**32)."""
    state[0] += _GAMMA
    return np.int64(((mix(state[0]) >> _S32) * np.uint64(n)) >> _S32)


@kernel
def hash_prompts(tokens, prompt_lengths):
    """A nonzero 64-bit hash of each row's prompt, (N,): tokens (N, W), prompt_lengths (N,)."""
    hashes = np.empty(len(tokens), np.uint64)
    for row in range(len(tokens)):
        z = np.uint64(prompt_lengths[row])
        for i in range(prompt_lengths[row]):
            z = mix((z ^ np.uint64(tokens[row, i])) + _GAMMA)
        hashes[row] = max(z, np.uint64(1))
    return hashes


@kernel
def random_integers(seed, stream, size, first, count, width):
    """The first numbers of candidates `first` .., uint64 (count, width); row i depends only on
    `first` + i."""
    numbers, state = np.empty((count, width), np.uint64), np.empty(1, np.uint64)
    for row in range(count):
        start(state, seed, stream, size, first + row)
        for i in range(width):
            state[0] += _GAMMA
            numbers[row, i] = mix(state[0])
    return numbers


def random_numbers(
    seed: int, stream: int, size: int, first: int, count: int, width: int
) -> np.ndarray:
    """`random_integers` as numbers uniform in [0, 1)."""
    integers = random_integers(seed, stream, size, first, count, width)
    return (integers >> np.uint64(11)) * 2.0**-53
