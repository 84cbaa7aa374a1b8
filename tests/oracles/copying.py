"""A string, and the same string."""


def judge(line: str, size: int, format: str = "direct", alphabet_size: int = 26) -> str | None:
    """`letters <sep> letters`, 1 to n of them; the same with and without a chain."""
    tokens = line.split()
    if tokens.count("<sep>") != 1:
        return f"{tokens.count('<sep>')} <sep>"
    marker = tokens.index("<sep>")
    first, second = tokens[:marker], tokens[marker + 1 :]
    letters = "abcdefghijklmnopqrstuvwxyz"[:alphabet_size]
    if not set(first + second) <= set(letters):
        return "not letters"
    if not 1 <= len(first) <= size:
        return f"{len(first)} letters"
    return None if first == second else "the strings differ"
