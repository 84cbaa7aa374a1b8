"""Independent checkers for the lines of each task, written from the definitions.

Nothing here imports the package under test. Every `judge` takes a line of whitespace-separated
tokens and returns None if it is valid, otherwise the reason why not.
"""

import inspect

from . import arithmetic, edit_distance, lists

JUDGES = {
    "arithmetic": arithmetic.judge, "lis": lists.judge_lis, "ed": edit_distance.judge,
    "ed_local": edit_distance.judge_local, "mqar": lists.judge_mqar, "copy": lists.judge_copy,
}  # fmt: skip


def judge(line: str, task: str, **settings) -> str | None:
    """Call a task's judge with the settings that it accepts."""
    asked = inspect.signature(JUDGES[task]).parameters
    return JUDGES[task](line, **{key: settings[key] for key in asked if key in settings})


def drawn_lines(task, count: int, seed: int = 3) -> list[str]:
    drawn = task.draw(seed, 1, 0, count)
    return [" ".join(task.decode(drawn, row).tokens) for row in range(count)]
