"""Locality (Yang et al. 2024, Definition 5.3): how far back a token's dependencies reach."""

from tasks.task import Example, Task


def locality(task: Task, count: int = 20, seed: int = 0) -> int:
    """The largest `distance` in `count` sequences."""
    sequences = task.draw(seed, 0, 0, count)
    return max(distance(task, task.decode(sequences, row)) for row in range(count))


def distance(task: Task, example: Example) -> int:
    """The largest distance m from a token after the prompt to a token it needs."""
    needed = enumerate(task.dependencies(example), start=len(example.prompt))
    return max((at - other for at, others in needed for other in others), default=0)
