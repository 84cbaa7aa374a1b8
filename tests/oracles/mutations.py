"""Small mutations of lines; most results are invalid, and the judges must find them."""

import random


def another(token: str, rng: random.Random) -> str:
    if token.isdecimal():
        low, high = max(0, int(token) - 2), int(token) + 2
        return rng.choice([str(n) for n in range(low, high + 1) if n != int(token)])
    kind = next((k for k in ("+-*/", "()", "=") if token in k), "abcdefghijklmnopqrstuvwxyz")
    return rng.choice([other for other in kind if other != token] or ["|"])


def mutate(line: str, rng: random.Random, first: int = 0) -> str:
    """Change, drop, repeat or swap tokens at or after `first`, change the answer, or truncate."""
    tokens = line.split()
    kind = rng.choice(["change", "change", "change", "drop", "repeat", "swap", "answer", "cut"])
    i = rng.randrange(first, len(tokens))
    if kind == "change":
        tokens[i] = another(tokens[i], rng)
    elif kind == "drop":
        del tokens[i]
    elif kind == "repeat":
        tokens.insert(i, tokens[i])
    elif kind == "swap":
        j = rng.randrange(first, len(tokens))
        tokens[i], tokens[j] = tokens[j], tokens[i]
    elif kind == "answer":
        tokens[-1] = another(tokens[-1], rng)
    elif kind == "cut":
        del tokens[max(1, i) :]
    return " ".join(tokens)


def mutants(lines: list[str], count: int, seed: int, after_prompt: str | None = None) -> list[str]:
    """`count` distinct mutants, changed only after the first token `after_prompt` if given."""
    rng = random.Random(seed)
    originals = {" ".join(line.split()) for line in lines}
    results: list[str] = []
    while len(results) < count:
        line = rng.choice(lines)
        first = line.split().index(after_prompt) + 1 if after_prompt else 0
        mutant = mutate(line, rng, first)
        if mutant not in originals and mutant not in results:
            results.append(mutant)
    return results
