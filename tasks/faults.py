"""What to say when a method of a task fails: the task, the method, and what it was given."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from common import RunError, UserError

_LONGEST_SHOWN = 80
_WITH_OWN_WORDS = (UserError, RunError, MemoryError)


@contextlib.contextmanager
def named(task: str, method: str, prompt: Sequence[str] | None = None) -> Iterator[None]:
    """Turn what ``method`` raises into a `UserError` of one line that names it and ``prompt``.

    `UserError`, `RunError` and a lack of memory have words of their own.
    """
    try:
        yield
    except _WITH_OWN_WORDS:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        line = fault(task, method, reason, prompt)
        raise UserError(f"{line} (HYDRA_FULL_ERROR=1 shows where)") from error


def fault(task: str, method: str, reason: str, prompt: Sequence[str] | None = None) -> str:
    """Return the line for ``method`` of ``task``, with the prompt on which it is at fault."""
    line = f"task {task}: {method}: {reason}"
    return line if prompt is None else f"{line} on prompt {shown(prompt)}"


def shown(tokens: Sequence[str]) -> str:
    """Return the tokens for a message, the first ones where there are many."""
    text = " ".join(map(str, tokens))
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
