"""Configurations that were resolved before: beside a result, or in a run's folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from common import UserError, load_yaml, read_regular
from config.identity import RESULTS_VERSION, cell_name
from config.schema import CellConfig, validate_cell
from hydra_words import CELL_SECTIONS
from instantiate import locate, require_trusted

_NAMES = ("cell", "weights", "results_version", "sources")


def read_config(path: str | Path) -> tuple[CellConfig, dict[str, Any]]:
    """Return the cell that a resolved configuration describes, and its file's content.

    Raises `UserError` when the file is missing, damaged, or no configuration of a cell.
    """
    try:
        content = load_yaml(read_regular(path).decode("utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise UserError(f"{path}: damaged; not readable as YAML ({error})") from None
    if not isinstance(content, dict) or "task" not in content:
        raise UserError(f"{path}: damaged; not the configuration of a cell")
    try:
        plain = {key: value for key, value in content.items() if key not in _NAMES}
        return validate_cell(plain), content
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def cell_from_file(path: str, call: dict[str, Any], overridden: Sequence[str] = ()) -> CellConfig:
    """Return the cell of ``path``, run as ``call`` has it: machine, folders and logger.

    Raises `UserError` when the call overrides what the file decides, and when this version of the
    code gives the configuration another name: its result would not be the one in the table.
    """
    if not isinstance(path, str):
        raise UserError(f"config={path}: must be the path of a resolved configuration")
    trust = call["trust"]
    if not isinstance(trust, bool):
        raise UserError(f"trust={trust}: must be true or false")
    for key in overridden:
        if key.partition(".")[0] in (*CELL_SECTIONS, "seeds"):
            raise UserError(f"{key}: config={path} decides it; give one of the two")
    config, content = read_config(path)
    places = [call[key] for key in ("runs_dir", "results_dir", "data_dir")]
    require_trusted_classes(content, path, trust, [Path(path).parent, *map(Path, places)])
    plain = {key: value for key, value in content.items() if key in CELL_SECTIONS}
    config = validate_cell({**call, **plain, "seeds": None})
    require_name(config, content, path)
    return config


def require_trusted_classes(
    content: Any, path: str | Path, trust: bool, folders: Iterable[Path]
) -> None:
    """Raise `UserError` where what ``path`` holds names code, anywhere, that may not be run.

    It must be asked before a name is hashed, which imports classes to find their sources.  From
    below ``folders`` code is never run, unless the person works there.
    """
    here = Path.cwd()
    never = [folder for folder in folders if not here.is_relative_to(folder.resolve())]
    for key, target in _keyed_targets(content):
        require_trusted(target, f"{path}: {key}", trust, never)


def _keyed_targets(content: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every `_target_` in ``content``, however deep, under its dotted key."""
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(content, dict | list):
        parts = content.items() if isinstance(content, dict) else enumerate(content)
    for name, value in parts:
        if name == "_target_":
            yield f"{key}_target_", value
        yield from _keyed_targets(value, f"{key}{name}.")


def require_name(config: CellConfig, content: dict[str, Any], path: str | Path) -> None:
    """Raise `UserError` where the name in a configuration's file is not the one it has now."""
    stated, version = content.get("cell"), content.get("results_version")
    if version is not None and version != RESULTS_VERSION:
        raise UserError(
            f"{path}: written by results version {version}, this is {RESULTS_VERSION}: the code "
            "has changed what comes out; check out the commit that stands in the table"
        )
    if stated is not None and stated != cell_name(config):
        for key, target in _keyed_targets(content):
            locate(target, f"{path}: {key}")  # a module that is not found explains the other name
        raise UserError(
            f"{path}: says cell {stated}, but its settings (or the files and classes they name) "
            f"are those of cell {cell_name(config)}; was it edited? Without its line cell: it runs"
        )
