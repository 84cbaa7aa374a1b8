"""python -m benchmarks NAME [key=value ...]: measure, print, write a record."""

from __future__ import annotations

import importlib
import inspect
import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from common import UserError, did_you_mean, in_one_line

NAMES = sorted(
    path.stem for path in Path(__file__).parent.glob("[a-z]*.py") if path.stem != "timing"
)
USAGE = f"python -m benchmarks NAME [key=value ...]; NAME is one of {', '.join(NAMES)}"


def main() -> None:
    """Call the function ``main`` of benchmarks/NAME.py with the options of the command line."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print(USAGE)
        return
    if name not in NAMES:
        raise UserError(f"no benchmark {name!r}{did_you_mean(name, NAMES)}; {USAGE}")
    function = importlib.import_module(f"benchmarks.{name}").main
    function(**read_options(function, sys.argv[2:]))


def read_options(function: Callable[..., Any], words: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of ``function`` that words ``key=value`` give; a list is ``key=a,b``.

    Raises `UserError` for an unknown or missing key and for a value of another type.
    """
    types = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters
    options = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in parameters:
            raise UserError(f"{word}: write KEY=VALUE; the keys are {', '.join(parameters)}")
        many = "tuple" in str(types[key])
        content = yaml.safe_load(f"[{value.strip('[]')}]" if many else value)
        try:
            options[key] = TypeAdapter(types[key]).validate_python(content)
        except ValidationError as error:
            raise UserError(f"{word}: {error.errors()[0]['msg']}") from None
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in options:
            raise UserError(f"{key}=... is missing; the keys are {', '.join(parameters)}")
    return options


if __name__ == "__main__":
    in_one_line(main)()
