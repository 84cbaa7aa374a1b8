"""The kinds of failure that a person can cause or must be told of, and words for them.

Entry points turn them into one line on standard error; see ``cli``.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any


class UserError(Exception):
    """A bad call: a wrong value, an unknown key, a missing or damaged file. Exit status 2."""


class RunError(Exception):
    """A run that failed: divergence, a full disk, a lost worker. Exit status 1."""


class DiskFullError(RunError):
    """A file found no room. What was being done is unfinished: the same command goes on with it."""


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return "; did you mean ...?" with the known name most like ``name``, "" where none is."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def explain(finding: Mapping[str, Any], *above: str) -> str:
    """Return what pydantic found wrong, in one line: key, value, what would be right.

    ``above`` are the keys above those that it names.
    """
    location = [*above, *(str(part) for part in finding["loc"] if part != "machine")]
    if location and location[-1] in ("int", "float", "str"):  # a branch of a union
        location.pop()
    key, given = ".".join(location), finding["input"]
    if finding["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"unknown key {key}"
    if finding["type"] in ("missing", "missing_argument"):
        return f"missing key {key}"
    if finding["type"] == "dict_type":
        return f"{key}={given!r}: has keys of its own; write {key}.KEY=VALUE"
    message = finding["msg"].removeprefix("Value error, ")
    message = re.sub(r"^\w+ should", "must", message[0].lower() + message[1:])
    return f"{key}={given!r}: {message}"
