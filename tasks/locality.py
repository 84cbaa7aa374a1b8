"""Dependency distances in sampled sequences.

Locality (Yang et al. 2024, Definition 5.3): the largest distance m from a token after the prompt to
a token it needs; a second measure counts only dependencies on the chain.
"""

from tasks.task import Example, Task


def locality(task: Task, count: int = 20, seed: int = 0) -> tuple[int, int]:
    """Both distances in tokens; the second is 0 if no token needs an earlier chain token."""
    sequences = task.draw(seed, 0, 0, count)
    found = [distances(task, task.decode(sequences, row)) for row in range(count)]
    return max(longest for longest, _ in found), max(in_chain for _, in_chain in found)


def distances(task: Task, example: Example) -> tuple[int, int]:
    first = len(example.prompt)
    longest = in_chain = 0
    for position, needed in enumerate(task.dependencies(example), start=first):
        longest = max([longest, *(position - other for other in needed)])
        in_chain = max([in_chain, *(position - other for other in needed if other >= first)])
    return longest, in_chain
