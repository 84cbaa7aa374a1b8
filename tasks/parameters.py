"""The constructor's parameters of a task: kept, read back, and checked."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Self

import numpy as np

from common import UserError
from instantiate import parameter_names


class Parameters:
    """The base of `Task`: reads back, changes and checks the parameters of its constructor.

    Each is kept under its own name; the key of a data set and messages are made of them.
    """

    name: ClassVar[str]

    @classmethod
    def parameter_names(cls) -> list[str]:
        """Return the names of all constructor parameters."""
        return parameter_names(cls)

    @property
    def parameters(self) -> dict[str, Any]:
        """Every constructor parameter and its value; `UserError` for one that is not kept."""
        names = self.parameter_names()
        for name in names:
            if not hasattr(self, name):
                raise UserError(
                    f"{type(self).__name__}: {name!r} is not kept: write self.{name} = {name}"
                )
        return {name: getattr(self, name) for name in names}

    def with_parameters(self, **changes: Any) -> Self:
        """Return a copy with some parameters changed."""
        return type(self)(**{**self.parameters, **changes})

    def whole_number(
        self, key: str, value: Any, least: int, most: int | None = None, reason: str = ""
    ) -> int:
        """Return ``value`` when it is a whole number in range, else raise `UserError`.

        ``reason`` says why ``most`` is the bound.
        """
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise UserError(f"task {self.name}: {key}={value!r} must be a whole number")
        if value < least:
            raise UserError(f"task {self.name}: {key}={value} must be at least {least}")
        if most is not None and value > most:
            because = f" ({reason})" if reason else ""
            raise UserError(f"task {self.name}: {key}={value} must be at most {most:,}{because}")
        return int(value)

    def one_of(self, key: str, value: Any, choices: Collection[str]) -> str:
        """Return ``value`` when it is among ``choices``, else raise `UserError`."""
        if value not in choices:
            raise UserError(
                f"task {self.name}: {key}={value!r} must be one of {', '.join(choices)}"
            )
        return str(value)
