"""How far back a task's tokens look: m of Definition 5.3 in the paper. A task is m-local if no
token needs one further back; sparse attention then needs a constant D, linear at least √m."""

from tasks.task import Task


def locality(task: Task) -> tuple[int, int]:
    """The largest distance from a token to one it needs, and to one that it needs after the prompt,
    in 1,000 sequences."""
    drawn = task.draw(0, 0, 0, 1000)
    farthest = after_prompt = 0
    for example in (task.decode(drawn, row) for row in range(1000)):
        first = len(example.prompt)
        for at, needed in enumerate(task.dependencies(example), first):
            farthest = max([farthest, *(at - other for other in needed)])
            after_prompt = max([after_prompt, *(at - other for other in needed if other >= first)])
    return farthest, after_prompt
