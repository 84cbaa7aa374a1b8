"""`<results_dir>/<experiment>/`: the results of an experiment.

results.csv   a row per evaluation and seed, with a column for every setting that varies
cells.jsonl   a line per cell: its configuration, learning curve and errors
config.yaml   shared settings; a row adds the cell's own
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import filelock
import pandas as pd
import yaml

from common import UserError, did_you_mean, write_text
from experiments.config import measured_settings

COLUMNS = """
    task size format max_len model layers heads dim seed recipe status reason stopped
    answer_accuracy answer_accuracy_low answer_accuracy_high chain_exact_match chance_accuracy
    n_test steps steps_to_90 seconds_to_90 still_improving train_seconds eval_seconds params
    flops_linear_layers flops_total flops_training state_bytes precision device torch_version
    data_fingerprint run cell commit finished_at
""".split()
SORT = ["task", "format", "size", "model", "layers", "heads", "dim", "recipe", "seed"]
# Standard columns that are settings.
COLUMN_OF = {
    "task.name": "task", "model.name": "model", "model.num_layers": "layers",
    "model.num_heads": "heads", "model.dim": "dim", "recipe.name": "recipe",
    "recipe.precision": "precision", "seed": "seed",
}  # fmt: skip
# Two more, as evaluated, which may differ from training.
MEASURED = {"task.size": "size", "task.format": "format"}
_COVERED = {*COLUMN_OF, "task._target_", *(f"measure.{key}" for key in MEASURED)}
Row = dict[str, str]


def read_table(folder: Path, **options: Any) -> pd.DataFrame:
    """The results table in `folder`, possibly empty; `options` are those of `pandas.read_csv`."""
    path = folder / "results.csv"
    if not path.exists():
        return pd.DataFrame(columns=COLUMNS)
    types = {"cell": str, "run": str, "commit": str}  # some are all digits
    return pd.read_csv(path, **{"dtype": types, **options})


def read_cells(folder: Path) -> dict[str, dict[str, Any]]:
    """The entries of cells.jsonl by cell."""
    path = folder / "cells.jsonl"
    if not path.exists():
        return {}
    lines = map(json.loads, path.read_text().splitlines())
    return {line["cell"]: line for line in lines}


def published_cell(name: str, results_dirs: Iterable[str]) -> dict[str, Any]:
    """The deciding settings of EXPERIMENT/CELL in the first table that has it."""
    experiment, _, cell = str(name).partition("/")
    known: list[str] = []
    for results_dir in results_dirs:
        cells = read_cells(Path(results_dir) / experiment)
        if cell in cells:
            return cells[cell]["config"]
        known += cells
    near = did_you_mean(cell, known, f"{experiment}/")
    raise UserError(f"cell={name}: not found in {' or '.join(results_dirs)}{near}")


def upsert(folder: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Enter evaluations into the table; many processes can do so at once. A finished row is never
    replaced by an unfinished one; of two finished ones the later wins. A finished row also
    replaces rows of the same configuration made with older files or code."""
    records, (rows, _) = list(records), _rows_and_cells(folder)
    if not any(_is_new(record["row"], rows) for record in records):
        return  # so the table may be read-only
    folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder / ".lock"):
        rows, cells = _rows_and_cells(folder)
        for record in records:
            row, cell = record["row"], record["row"]["cell"]
            if _is_new(row, rows):
                if row["status"] == "done":
                    for old in [c for c in cells if cells[c]["config"] == record["config"]]:
                        rows.pop(old, None)
                        cells.pop(old)
                rows[cell] = {column: _text(row.get(column)) for column in COLUMNS}
                kept = {k: v for k, v in record.items() if k != "row" and v is not None}
                cells[cell] = {"cell": cell, **kept}
        write_table(folder, rows, cells)


def write_table(folder: Path, rows: dict[str, Row], cells: dict[str, dict[str, Any]]) -> None:
    """Write config.yaml, cells.jsonl and results.csv; `cells` has every key of `rows`."""
    configs = [cells[cell]["config"] for cell in rows]
    keys = varying_keys(configs)
    for row, config in zip(rows.values(), configs, strict=True):
        settings = other_settings(config)
        row |= {key: _text(settings.get(key)) for key in keys}
    table = pd.DataFrame(list(rows.values()), columns=[*COLUMNS, *keys], dtype=object)
    table = table.sort_values([*SORT, *keys, "cell"], kind="stable", key=_sortable)
    lines = [json.dumps(cells[cell], separators=(",", ":")) for cell in sorted(cells)]
    shared = shared_settings(configs, keys)
    write_text(folder / "config.yaml", yaml.safe_dump(shared, sort_keys=True))
    write_text(folder / "cells.jsonl", "\n".join(lines) + "\n")
    write_text(folder / "results.csv", table.to_csv(index=False))


def shared_settings(configs: list[Mapping[str, Any]], varying: list[str]) -> dict[str, Any]:
    """The settings without a column, under dotted keys: those shared by `all` cells, and those
    shared by the cells of one task, model or recipe. `varying` are settings with a column."""
    held = {key for key in COLUMN_OF if not key.endswith(".name")}
    held |= {*varying, *(f"measure.{key}" for key in MEASURED)}
    held |= {key for key in MEASURED if measured_as_trained(configs, key)}
    found: dict[str, Any] = {"all": {}, "task": {}, "model": {}, "recipe": {}}
    for config in configs:
        for key, value in flat(config).items():
            section = key.partition(".")[0]
            if key not in held and section in found:
                found[section].setdefault(config[section]["name"], {})[key] = value
            elif key not in held:
                found["all"][key] = value
    return found


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """The standard columns of a cell's deciding settings."""
    settings = flat(config)
    measured = measured_settings(config["task"], config.get("measure", {}).get("task", {}))
    columns = {column: settings[key] for key, column in COLUMN_OF.items()}
    return columns | {"size": measured["size"], "format": measured.get("format", "cot")}


def other_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without a standard column, under dotted keys."""
    return {k: v for k, v in flat(config).items() if k not in _COVERED and v is not None}


def flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted keys, e.g. `model.mixer.block_size`."""
    if not isinstance(settings, Mapping):
        return {prefix: settings}
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= flat(value, f"{prefix}.{key}" if prefix else str(key))
    return found


def varying_keys(configs: list[Mapping[str, Any]]) -> list[str]:
    """The dotted settings that vary among cells of one task, model or recipe, without `task.size`
    and `task.format` if every cell is measured as trained: the standard columns hold them."""
    rows = [(identity(config), other_settings(config)) for config in configs]
    found = []
    for key in sorted({key for _, settings in rows for key in settings}):
        section = key.partition(".")[0]
        owner = section if section in ("task", "model", "recipe") else ""
        values: dict[Any, set[str]] = {}
        for columns, settings in rows:
            text = json.dumps(settings.get(key), sort_keys=True)
            values.setdefault(columns.get(owner), set()).add(text)
        if any(len(group) > 1 for group in values.values()) and not (
            key in MEASURED and measured_as_trained(configs, key)
        ):
            found.append(key)
    return found


def measured_as_trained(configs: list[Mapping[str, Any]], key: str) -> bool:
    """Whether every cell is measured at the size or format (`key`) it trains at."""
    name = key.removeprefix("task.")
    trained = [{"format": "cot", **config["task"]}[name] for config in configs]
    return trained == [identity(config)[name] for config in configs]


def text_rows(folder: Path) -> dict[str, Row]:
    """The rows of the results table by cell, all values as text."""
    rows: Any = read_table(folder, dtype=str, keep_default_na=False).to_dict("records")
    return {row["cell"]: row for row in rows}


def _rows_and_cells(folder: Path) -> tuple[dict[str, Row], dict[str, dict[str, Any]]]:
    rows, cells = text_rows(folder), read_cells(folder)
    if rows and not cells:
        raise UserError(f"{folder}: cells.jsonl is missing; restore it, or move results.csv away")
    # A kill after cells.jsonl is written leaves replaced rows without cells.
    return {cell: row for cell, row in rows.items() if cell in cells}, cells


def _is_new(row: Mapping[str, Any], rows: Mapping[str, Row]) -> bool:
    def rank(row: Mapping[str, Any]) -> tuple[bool, str]:
        return row["status"] == "done", row["finished_at"]

    known = rows.get(row["cell"])
    return known is None or rank(row) > rank(known)


def _text(value: Any) -> str:
    return "" if value is None or value != value else str(value)


def _sortable(column: pd.Series) -> pd.Series:
    """Numbers, if every nonempty value is one."""
    numbers = pd.to_numeric(column, errors="coerce")
    return numbers if (numbers.notna() | (column == "")).all() else column
