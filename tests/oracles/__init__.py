"""What a valid line of each task is, written from the definitions alone.

Nothing here imports the package under test, and speed does not matter. Every ``judge`` takes a line
of text, its tokens separated by white space, and returns None when it is valid, else the reason.
"""

import inspect

from . import arithmetic, edit_distance, lists

JUDGES = {
    "arithmetic": arithmetic.judge, "lis": lists.judge_lis, "ed": edit_distance.judge,
    "ed_local": edit_distance.judge_local, "mqar": lists.judge_mqar, "copy": lists.judge_copy,
}  # fmt: skip


def judge(line: str, task: str, **settings) -> str | None:
    """The verdict of a task's judge, which is told those of the settings that it asks for."""
    asked = inspect.signature(JUDGES[task]).parameters
    return JUDGES[task](line, **{key: settings[key] for key in asked if key in settings})


def drawn_lines(task, count: int, seed: int = 3) -> list[str]:
    drawn = task.draw(seed, 1, 0, count)
    return [" ".join(task.decode(drawn, row).tokens) for row in range(count)]
