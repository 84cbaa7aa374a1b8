"""Multi-query associative recall, by looking through the pairs."""

import re


def judge(
    line: str,
    size: int,
    format: str = "cot",
    queries: int | None = None,
    vocab_size: int | None = None,
    capacity: int | None = None,
) -> str | None:
    """`n pairs | m keys <sep> m pairs <sep> value`, or `n pairs | m keys <sep> value` when direct;
    with labels, `n pairs | m keys <sep> labels`, a bar for each token up to the bar, then m values.

    All keys differ and lie in the lower half of the vocabulary, all values in the upper half.
    """
    largest = size if capacity is None else capacity
    vocab_size = max(128, 4 * largest) if vocab_size is None else vocab_size
    asked = size if queries is None else queries
    parts = [part.split() for part in " ".join(line.split()).split("<sep>")]
    if len(parts) != (3 if format == "cot" else 2):
        return f"{len(parts) - 1} <sep>"
    numbers = {token for part in parts for token in part} - {"|"}
    if not all(re.fullmatch("[1-9][0-9]*", n) and int(n) <= vocab_size for n in numbers):
        return "not in the vocabulary"
    prompt, *chain, answer = parts
    if len(prompt) != 2 * size + 1 + asked or prompt.count("|") != 1 or prompt[2 * size] != "|":
        return "the prompt is not pairs, a bar and queries"
    keys, values = [int(t) for t in prompt[0 : 2 * size : 2]], prompt[1 : 2 * size : 2]
    wanted = [int(t) for t in prompt[2 * size + 1 :]]
    if sorted(set(keys)) != sorted(keys) or max(keys) > vocab_size // 2:
        return "the keys are not different keys"
    if len(set(values)) != size or min(map(int, values)) <= vocab_size // 2:
        return "the values are not different values"
    if len(set(wanted)) != asked or not set(wanted) <= set(keys):
        return "the queries are not different keys of the pairs"
    value_of = dict(zip(keys, values, strict=True))
    expected = [token for query in wanted for token in (str(query), value_of[query])]
    if chain and chain[0] != expected:
        return f"the chain is {chain[0]} instead of {expected}"
    right = ["|"] * (2 * size + 1) + expected[1::2] if format == "tagged" else expected[-1:]
    if answer != right:
        return f"the answer is {answer} instead of {right}"
    return None
