"""What the command lines of ``sweep.py`` and ``evaluate.py`` may say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from common import UserError, explain
from config.schema import MACHINE_KEYS, STRICT, Count, LoggerConfig, require_folder
from training.bounds import bounded
from training.machine import Machine

# A folder's or file's name may look like a number.
PathText = Annotated[
    str, BeforeValidator(lambda value: str(value) if type(value) is int else value)
]
Hours = Annotated[float, bounded(0, 24 * 366, "that is a year", above=True)]
C = TypeVar("C")


@dataclass(frozen=True)
class SweepCall:
    """The keys of conf/sweep.yaml."""

    experiment: dict[str, Any]
    only: dict[str, Any]
    overrides: list[str]
    logger: LoggerConfig
    machine: Machine
    dry_run: bool
    status: bool
    watch: bool
    retry_failed: bool
    remeasure: bool
    plot: bool
    strategy: Literal["grid", "frontier"]
    max_hours: Hours | None
    results_dir: PathText
    runs_dir: PathText
    data_dir: PathText

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        for key in ("results_dir", "runs_dir", "data_dir"):
            require_folder(key, getattr(self, key))


@dataclass(frozen=True)
class FileCall:
    """The group ``data`` of conf/evaluate.yaml."""

    file: PathText | None

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class EvaluateCall:
    """The keys of conf/evaluate.yaml."""

    run: PathText
    task: dict[str, Any]
    data: FileCall
    count: Count | None
    out: PathText | None
    data_dir: PathText | None
    trust: bool
    machine: Machine

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        if self.data.file is not None and self.count is not None:
            raise UserError(f"data.file={self.data.file}: all of a file is measured, without count")


def checked(kind: type[C], plain: Mapping[str, Any]) -> C:
    """Return ``plain`` as a call of that kind; `UserError` names key and remedy."""
    values = {key: value for key, value in plain.items() if key not in MACHINE_KEYS}
    values["machine"] = {key: plain[key] for key in MACHINE_KEYS if key in plain}
    try:
        return TypeAdapter(kind).validate_json(json.dumps(values))
    except ValidationError as error:
        raise UserError("; ".join(dict.fromkeys(map(explain, error.errors())))) from None
