"""MQAR: multi-query associative recall (Arora et al. 2023, "Zoology")."""

import math

import numpy as np

from tasks.kernels import kernel
from tasks.random_numbers import below, start
from tasks.sequences import MAX_VOCABULARY, Example, SequenceSet
from tasks.task import Task

MAX_TOKENS = MAX_VOCABULARY - 4  # padding, EOS, the marker and the bar
MIN_TOKENS = 128


class MQAR(Task):
    """`size` key-value pairs, then keys to look up; all keys and values differ.

    Keys are 1 .. `vocab_size` / 2, values the other half, as in zoology, whose vocab_size is 8,192;
    None means max(128, 4n), n `capacity` or `size`. The prompt lists `queries` of the keys, by
    default all, in random order. The chain restates each query followed by its value; the answer is
    the last value. format="tagged" is zoology's: the model reads pairs and queries and labels each
    query with its value, all other tokens with the bar.

    Example (size 3, 2 queries)::

        prompt  3 70 41 66 9 101 | 9 3 <sep>
        chain   9 101 3 70 <sep>
        answer  70
    """

    name = "mqar"
    formats = ("cot", "direct", "tagged")

    def __init__(
        self,
        size: int,
        format: str = "cot",
        queries: int | None = None,
        vocab_size: int | None = None,
        capacity: int | None = None,
    ):
        super().__init__(size, format, capacity)
        self.queries = queries
        asked = self.size if queries is None else queries
        self.num_queries = self.whole_number("queries", asked, 1, self.size)
        self.prompt_len = 2 * self.size + self.num_queries + 2
        least = 2 * self.largest_size
        self.vocab_size = max(MIN_TOKENS, 2 * least)
        if vocab_size is not None:
            self.vocab_size = self.whole_number("vocab_size", vocab_size, least, MAX_TOKENS)
        half = self.vocab_size // 2
        self.keys, self.values = range(1, half + 1), range(half + 1, self.vocab_size + 1)

    @property
    def own_tokens(self) -> list[str]:
        return ["<sep>", "|", *map(str, range(1, self.vocab_size + 1))]

    @property
    def max_len(self) -> int:
        """2n + 3m + 4 with a chain, 2n + m + 3 without, 2n + m + 2 with labels, for m queries."""
        chain = 2 * self.num_queries + 1
        return self.prompt_len + {"cot": chain + 1, "direct": 1, "tagged": 0}[self.format]

    def solve(self, prompt: list[str]) -> tuple[list[str], list[str]]:
        pairs, queries = split(prompt)
        values = dict(pairs)
        chain = [token for query in queries for token in (query, values[query])]
        return [*chain, "<sep>"], chain[-1:]

    def complete(self, prompt: list[str]) -> Example:
        """With labels, every token of the prompt has one."""
        if not self.labelled:
            return super().complete(prompt)
        chain, _ = self.solve(prompt)
        return Example(prompt, [], ["|"] * (prompt.index("|") + 1) + chain[1:-1:2])

    def check_prompt(self, prompt: list[str]) -> str | None:
        if prompt.count("|") != 1 or len(prompt) != self.prompt_len:
            return f"the prompt is not {self.size} pairs, a bar and {self.num_queries} queries"
        if prompt[2 * self.size] != "|":
            return f"the bar does not follow {self.size} pairs"
        pairs, queries = split(prompt)
        for role, allowed, tokens in (
            ("key", self.keys, [key for key, _ in pairs]),
            ("value", self.values, [value for _, value in pairs]),
            ("query", self.keys, queries),
        ):
            for token in tokens:
                if int(token) not in allowed:
                    return f"{token} is not a {role}"
            if len(set(tokens)) < len(tokens):
                return f"a {role} occurs twice"
        unknown = [query for query in queries if query not in dict(pairs)]
        return f"{unknown[0]} is queried but has no value" if unknown else None

    def draw_batch(self, seed: int, stream: int, first: int, count: int, size: int) -> SequenceSet:
        dtype = self.vocabulary.dtype
        pairs = np.empty((count, 2 * size), dtype)
        asked = np.empty((count, 2 * min(self.num_queries, size)), dtype)
        _draw(seed, stream, first, self.vocab_size, pairs, asked)
        queries, values = asked[:, ::2], asked[:, 1::2]  # (N, m) each
        prompt = np.insert(np.hstack([pairs, queries]), 2 * size, _BAR, axis=1)
        if self.labelled:
            asked = np.hstack([np.full((count, 2 * size + 1), _BAR, dtype), values])
        return self.join(prompt, asked, values[:, -1:])

    def state_bits(self) -> float | tuple[float, float]:
        """With a chain, lists of queried pairs; without, the last value. With labels, sets of
        pairs: only given keys are queried, so only sets of the same keys must be told apart."""
        keys, values = len(self.keys), len(self.values)
        if self.format == "direct":
            return math.log2(values)
        if self.labelled:
            low = math.perm(values, self.size)
            return math.log2(low), math.log2(low * math.comb(keys, self.size))
        asked = self.num_queries
        return math.log2(math.perm(keys, asked) * math.perm(values, asked))


def split(prompt: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    bar = prompt.index("|")
    pairs = list(zip(prompt[:bar:2], prompt[1:bar:2], strict=True))
    return pairs, prompt[bar + 1 : -1]


# Ids: PAD, EOS, the marker, the bar, then the number v at v + 3.
_BAR, _OFFSET = 3, 3


@kernel
def _shuffle_front(state, numbers, count):
    """Move a uniform choice of `count` numbers, in random order, to the front."""
    for i in range(count):
        j = i + below(state, len(numbers) - i)
        numbers[i], numbers[j] = numbers[j], numbers[i]


@kernel
def _draw(seed, stream, first, vocab_size, pairs, asked):
    size, queries, half = pairs.shape[1] // 2, asked.shape[1] // 2, vocab_size // 2
    state = np.empty(1, np.uint64)
    keys, values = np.empty(half, np.int64), np.empty(vocab_size - half, np.int64)
    order = np.empty(size, np.int64)
    for row in range(len(pairs)):
        start(state, seed, stream, size, first + row)
        for i in range(half):
            keys[i] = i + 1 + _OFFSET
        for i in range(vocab_size - half):
            values[i] = half + i + 1 + _OFFSET
        for i in range(size):
            order[i] = i
        _shuffle_front(state, keys, size)
        _shuffle_front(state, values, size)
        _shuffle_front(state, order, queries)
        for i in range(size):
            pairs[row, 2 * i] = keys[i]
            pairs[row, 2 * i + 1] = values[i]
        for i in range(queries):
            asked[row, 2 * i] = keys[order[i]]
            asked[row, 2 * i + 1] = values[order[i]]
