"""Oracles for word and closure problems: compose maps, try all ways to cut a word."""

from collections.abc import Callable
from functools import cache


def one_after_the_other(p: str, g: str) -> str:
    """Compose permutations in one-line notation, p first: x is mapped to g(p(x))."""
    return "".join(g[int(p[x]) - 1] for x in range(len(p)))


def times(monoid: str) -> Callable[[str, str], str]:
    """The product of two elements in text form, without a table."""
    if monoid == "flip-flop":
        return lambda x, y: x if y == "1" else y
    if "x" in monoid:
        one, two = (times(part) for part in monoid.split("x"))

        def both(x: str, y: str) -> str:
            (a, b), (c, d) = x.split(":"), y.split(":")
            return f"{one(a, c)}:{two(b, d)}"

        return both
    if monoid[0] == "Z":
        return lambda x, y: str((int(x) + int(y)) % int(monoid[1:]))
    return one_after_the_other


def identity(monoid: str) -> str:
    known = {"A4xZ5": "1234:0", "flip-flop": "1"} | dict.fromkeys(("A4", "S4"), "1234")
    return (known | {"S3": "123", "A5": "12345", "S5": "12345"}).get(monoid, "0")


def value(monoid: str, word: list[str]) -> str:
    product = identity(monoid)
    for letter in word:
        product = times(monoid)(product, letter)
    return product


def judge_word(line: str, monoid: str, format: str = "cot", question: str = "value") -> str | None:
    """`word <sep> products <sep> answer`; direct: no products; tagged: only products."""
    word, *rest = [part.split() for part in " ".join(line.split()).split("<sep>")]
    chain = [value(monoid, word[: i + 1]) for i in range(len(word))]
    answer = chain[-1:]
    if question == "member":
        accepted = "a" if monoid == "flip-flop" else identity(monoid)
        answer = ["yes" if chain[-1] == accepted else "no"]
    expected = {"cot": [chain, answer], "direct": [answer], "tagged": [chain]}[format]
    return None if rest == expected else f"{rest} instead of {expected}"


def omega_member(u: list[str], v: list[str], monoid: str, size: int, accepted: set[str]) -> bool:
    """Weak recognition: (h(u) h(v)^i h(x), h(yx)^pi) is a linked pair (s, e) with s accepted, for
    some v = xy and 0 <= i < size, the size of the monoid."""
    mul = times(monoid)
    for cut in range(len(v)):
        x, turn = v[:cut], value(monoid, v[cut:] + v[:cut])
        e = turn
        while mul(e, e) != e:
            e = mul(e, turn)
        for i in range(size):
            s = value(monoid, u + v * i + x)
            if s in accepted and mul(s, e) == s:
                return True
    return False


def closed(word: tuple[str, ...], monoid: str, subset: frozenset[str], r: int) -> bool:
    """Whether the word can be cut into pieces of 1 to r letters with products in `subset` (F)."""

    @cache
    def rest(start: int) -> bool:
        if start == len(word):
            return True
        ends = range(start + 1, min(start + r, len(word)) + 1)
        return any(value(monoid, list(word[start:end])) in subset and rest(end) for end in ends)

    return rest(0)


def judge_closure(line: str, monoid: str, subset: set[str], r: int, format="cot") -> str | None:
    """`word <sep> product reach|lost ... <sep> yes|no`; direct: `word <sep> yes|no`."""
    word, *rest = [part.split() for part in " ".join(line.split()).split("<sep>")]
    chain: list[str] = []
    for i in range(1, len(word) + 1):
        reached = closed(tuple(word[:i]), monoid, frozenset(subset), r)
        chain += [value(monoid, word[:i]), "reach" if reached else "lost"]
    answer = ["yes" if chain[-1] == "reach" else "no"]
    expected = [chain, answer] if format == "cot" else [answer]
    return None if rest == expected else f"{rest} instead of {expected}"
