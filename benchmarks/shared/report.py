"""How every benchmark reads its arguments, prints its tables and writes its record."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
import yaml
from hydra_words import one_line
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException
from records.provenance import machine, now, source
from rich import box
from rich.console import Console
from rich.table import Table

from common import UserError, write_json

RECORDS = Path(__file__).parent.parent / "records"
WIDE = 500
CPU = torch.device("cpu")
Options = TypeVar("Options")


def read_options(options: type[Options], words: Sequence[str] | None) -> Options:
    """Return the dataclass ``options`` with the fields that ``words`` (``key=value``) set.

    A list is written ``dims=32,64`` or ``dims=[32,64]``.  Raises `UserError` on an unknown key or a
    value of another type.
    """
    given = OmegaConf.structured(options)
    known = ", ".join(field.name for field in dataclasses.fields(options))  # type: ignore[arg-type]
    types = typing.get_type_hints(options)
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals or key not in types:
            raise UserError(f"{word}: unknown, write KEY=VALUE; the keys are {known}")
        if typing.get_origin(types[key]) is list and not value.startswith("["):
            value = f"[{value}]"
        try:
            given.merge_with_dotlist([f"{key}={value}"])
        except (OmegaConfBaseException, ConfigKeyError, yaml.YAMLError) as error:
            raise UserError(f"{word}: {one_line(str(error))}") from None
    return typing.cast(Options, OmegaConf.to_object(given))


def require_among(key: str, values: Iterable[Any], known: Iterable[Any]) -> None:
    """Raise `UserError` for the first of ``values`` that is not ``known``."""
    choices = list(known)
    for value in values:
        if value not in choices:
            raise UserError(f"{key}={value}: must be among {', '.join(map(str, choices))}")


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print ``rows`` under ``header``: numbers to four digits or to whole ones, None empty."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(_shown, row))
    console = Console(markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDE  # nothing is cut in a file
    console.print(table)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def about(device: torch.device = CPU) -> dict[str, Any]:
    """Return what a measurement depends on: commit, device, threads, versions, date."""
    return {
        **source(),
        **machine(device),
        "threads": torch.get_num_threads(),
        "measured_at": now(),
    }


def write_record(path: Path, content: dict[str, Any], device: torch.device = CPU) -> None:
    """Write ``content`` with `about` at its head, atomically, and say where."""
    write_json(path, {"about": about(device), **content})
    print(f"record: {path}")


def read_record(path: Path) -> dict[str, Any]:
    """Return a record; `UserError` when it is missing or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        content["rows"]
    except OSError as error:
        raise UserError(f"record={path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: damaged, must be JSON with rows ({error})") from None
    return content


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a record that grows, none when there is no file; `UserError` when it is
    damaged."""
    return read_record(path)["rows"] if path.exists() else []
