"""One page that holds an experiment: figures, tables, every run, what is missing, how to redo it.

``results/<experiment>/report.html`` opens from disk without a network: pictures and data are inside
it, and the links lead to files beside it.  Data go in as JSON and come out through ``textContent``,
so no name in a table can break the page.
"""

from __future__ import annotations

import base64
import csv
import html
import importlib
import json
import math
import re
import shlex
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.colors import to_hex, to_rgb

from config.compose import config_dir_words
from config.grid import cells
from plots import FIGURES, style
from plots.cells import Grid, gather, is_unsure, records
from plots.deviations import DEVIATIONS
from plots.words import chance_text, notes_of, seeds_text
from records.table import training_devices

PAGE = Path(__file__).with_name("report_page.html")
RUN_COLUMNS = [
    "task", "format", "size", "max_len", "model", "layers", "heads", "dim", "seed", "recipe",
    "status", "reason", "answer_accuracy", "answer_accuracy_low", "answer_accuracy_high",
    "chain_exact_match", "chance_accuracy", "n_test", "steps", "train_seconds", "eval_seconds",
    "params", "flops_linear_layers", "flops_total", "state_bytes", "device", "cell", "commit",
    "finished_at",
]  # fmt: skip
LONGEST_TABLE = 300  # rows of a CSV that the page still shows; longer ones are linked


def draw(table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path) -> list[Path]:
    """Draw the experiment's other figures, then the report that shows them."""
    names = [name for name in experiment.figures or FIGURES if name != "report"]
    modules = [importlib.import_module(n if "." in n else f"plots.{n}") for n in names]
    drawn = [path for module in modules for path in module.draw(table, plan, experiment, out)]
    return [*drawn, *write(table, plan, experiment, out, drawn)]


def write(
    table: pd.DataFrame, plan: pd.DataFrame, experiment: Any, out: Path, drawn: Sequence[Path]
) -> list[Path]:
    """Write ``report.html`` beside ``out`` and return its path.

    ``drawn`` are the files to show: only what was drawn from this table, never a stale picture.
    """
    grid = gather(table, plan)
    folder = out.parent
    parts = {
        "name": _escaped(experiment.name),
        "description": _escaped(experiment.description),
        "summary": _summary(grid, experiment, folder),
        "deviations": "".join(f"<li>{_escaped(text)}</li>" for text in DEVIATIONS),
        "figures": _figures(drawn, folder) + _tables(drawn, folder),
        "data": _embedded(_data(grid, experiment, folder)),
    }
    page = string.Template(PAGE.read_text(encoding="utf-8")).substitute(parts)
    return [style.write_text(page, folder / "report.html")]


def _summary(grid: Grid, experiment: Any, folder: Path) -> str:
    states = grid.cells["state"].value_counts()
    told = ", ".join(f"{count} {state}" for state, count in states.items())
    named = [f"experiment={experiment.name}"]
    if folder.parent.as_posix() != "results":
        named.append(f"results_dir={folder.parent.as_posix()}")
    facts = {
        "Cells": f"{len(grid.cells)}: {told}",
        "Numbers": "; ".join(filter(None, [seeds_text(grid.cells), chance_text(grid.cells)])),
        "Budget": experiment.budget,
        "Run it": experiment.command,
        "Redraw it": shlex.join(["python", "-m", "plots", *config_dir_words(), *named]),
        "Devices": _distinct(grid.rows, "device"),
        "Trained on": _trained_elsewhere(grid.rows),
        "Commits": _distinct(grid.rows, "commit"),
        "Finished": _period(grid.rows),
        "Notes": " ".join(note.removeprefix("Note: ") for note in notes_of(grid)),
    }
    shown = {name: _escaped(str(value)) for name, value in facts.items() if value}
    for name in shown.keys() & {"Run it", "Redraw it"}:
        shown[name] = f'<code class="command">{shown[name]}</code>'
    return "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in shown.items())


def _trained_elsewhere(rows: pd.DataFrame) -> str:
    """Return the devices that trained, where they are not those that measured."""
    trained = training_devices(rows)
    elsewhere = (trained != rows.get("device")) & trained.notna()
    return _distinct(rows.assign(trained=trained), "trained") if elsewhere.any() else ""


def _distinct(rows: pd.DataFrame, name: str) -> str:
    if name not in rows:
        return ""
    counts = rows[name].dropna().astype(str).str[:80].value_counts()
    return ", ".join(f"{value} ({count} runs)" for value, count in sorted(counts.items()))


def _period(rows: pd.DataFrame) -> str:
    times = sorted(rows["finished_at"].dropna().astype(str)) if "finished_at" in rows else []
    return f"{_minute(times[0])} to {_minute(times[-1])}" if times else ""


def _minute(time: str) -> str:
    utc = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d(\.\d+)?\+00:00", time)
    return f"{utc[1]} {utc[2]} UTC" if utc else time


def _escaped(text: str) -> str:
    """Return HTML; marks that turn the direction of all that follows are left out."""
    return html.escape(re.sub("[\u202a-\u202e\u2066-\u2069]", "", text))


def _figures(drawn: Sequence[Path], folder: Path) -> str:
    shown = []
    for path in drawn:
        if path.suffix != ".png":
            continue
        content = path.read_bytes()
        picture = base64.b64encode(content).decode()
        width = int.from_bytes(content[16:20], "big")  # pixels, from the PNG's header
        name, link = _escaped(path.stem), _escaped(_link(path.with_suffix(".pdf"), folder))
        shown.append(
            f'<figure><div class="wide" tabindex="0"><img alt="{name}" width="{width // 2}" '
            f'src="data:image/png;base64,{picture}"></div>'
            f'<figcaption>{name} (<a href="{link}">PDF</a>)</figcaption></figure>'
        )
    return "\n".join(shown)


def _tables(drawn: Sequence[Path], folder: Path) -> str:
    shown = []
    for path in drawn:
        if path.suffix != ".csv":
            continue
        with path.open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        link = f'<a href="{_escaped(_link(path, folder))}">{_escaped(path.name)}</a>'
        if len(rows) > LONGEST_TABLE:
            shown.append(f"<p>{link}: {len(rows)} rows.</p>")
            continue
        head = "".join(f"<th>{_escaped(name.replace('_', ' '))}</th>" for name in header)
        body = "".join(
            "<tr>" + "".join(f"<td>{_escaped(_short(value))}</td>" for value in row) + "</tr>"
            for row in rows
        )
        shown.append(
            f"<details open><summary>{_escaped(path.stem)} ({link})</summary>"
            f'<div class="wide"><table class="sortable"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div></details>"
        )
        said = path.with_suffix(".md")
        if said in drawn:
            shown += _said(said.read_text(encoding="utf-8").splitlines())
    return "\n".join(shown)


def _said(lines: list[str]) -> list[str]:
    """Return what a table's Markdown says beside the table: how it counts, and what it finds."""
    plain = [text for text in lines if text and text[0] not in "#|" and text[:2] != "- "]
    found = [f"<li>{_escaped(text[2:])}</li>" for text in lines if text[:2] == "- "]
    notes = "".join(f"<p>{_escaped(text)}</p>" for text in plain)
    shown = [f"<details><summary>How this is counted</summary>{notes}</details>"] if plain else []
    return shown + ([f"<ul>{''.join(found)}</ul>"] if found else [])


def _short(value: str) -> str:
    """Six significant digits are enough on a page; the CSV has all."""
    try:
        number = float(value)
    except ValueError:
        return value
    return value if len(value) <= 9 or not math.isfinite(number) else f"{number:.6g}"


def _link(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _data(grid: Grid, experiment: Any, folder: Path) -> dict[str, Any]:
    """Return what the page's script needs: cells with their runs, labels and colours."""
    commands = _commands(grid, experiment, folder)
    others = [str(name) for name in grid.rows if "." in str(name)]
    columns = [name for name in [*RUN_COLUMNS, *others] if name in grid.rows]
    runs = _by_point(grid.rows, _runs(grid.rows, columns, folder, commands))
    names = [name for name in ("seed", "cell") if name in grid.planned]
    planned = _by_point(grid.planned, _plain_rows(grid.planned[names]))
    shown = []
    for cell in records(grid.cells):
        done = runs.get(cell.point, [])
        shown.append({
            "column": cell.column, "row": cell.row, "size": int(cell.size), "dim": int(cell.dim),
            "task": cell.task, "model": cell.model,
            "max_len": _plain(cell.max_len), "state": cell.state, "accuracy": _plain(cell.accuracy),
            "shown": style.percent(cell.accuracy) if cell.state == "done" else "",
            "unsure": is_unsure(cell), "chance": _plain(cell.chance_accuracy),
            "low": _plain(cell.accuracy_low) if cell.seeds == 1 else None,
            "high": _plain(cell.accuracy_high) if cell.seeds == 1 else None,
            "min": _plain(cell.accuracy_min), "max": _plain(cell.accuracy_max),
            "seeds": int(cell.seeds), "planned": int(cell.seeds_planned), "runs": done,
            "missing": _missing(planned.get(cell.point, []), done, commands),
        })  # fmt: skip
    colors = [to_hex(color) for color in matplotlib.colormaps[style.HEAT](np.linspace(0, 1, 101))]
    return {
        "experiment": experiment.name, "columns": grid.columns, "rows": grid.model_rows,
        "run_columns": columns, "cells": shown, "colors": colors,
        "inks": [style.ink_on(to_rgb(color)) for color in colors],
    }  # fmt: skip


def _by_point(frame: pd.DataFrame, rows: list[dict[str, Any]]) -> dict[tuple, list[dict[str, Any]]]:
    """Return the rows of ``frame``, as plain data, by the cell that they belong to."""
    found: dict[tuple, list[dict[str, Any]]] = {}
    for point, row in sorted(zip(frame["point"], rows, strict=True), key=lambda p: p[1]["seed"]):
        found.setdefault(point, []).append(row)
    return found


def _plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {str(name): _plain(value) for name, value in row.items()}
        for row in frame.to_dict("records")
    ]


def _runs(
    rows: pd.DataFrame, columns: list[str], folder: Path, commands: dict[str, str]
) -> list[dict[str, Any]]:
    """Return the table's rows with their command and with links to the files that exist."""
    places = {"config": "configs/{}.yaml", "curve": "curves/{}.csv", "errors": "errors/{}.json"}
    there = {path.relative_to(folder).as_posix() for path in folder.glob("*/*")}
    found = _plain_rows(rows[columns])
    for run in found:
        run["command"] = commands.get(run["cell"], "")
        for name, place in places.items():
            link = place.format(run["cell"])
            run[name] = link if link in there else ""
    return found


def _missing(
    planned: list[dict[str, Any]], runs: list[dict[str, Any]], commands: dict[str, str]
) -> list[dict[str, Any]]:
    """Return the planned seeds of a cell that have no result."""
    states = {run["seed"]: run["status"] for run in runs}
    return [
        {
            "seed": item["seed"],
            "state": states.get(item["seed"], "not run"),
            "command": commands.get(item.get("cell", ""), ""),
        }
        for item in planned
        if states.get(item["seed"]) != "done"
    ]


def _plain(value: Any) -> Any:
    """Return ``value`` as JSON takes it: no NaN, no numpy, whole numbers without a point."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, float | np.floating):
        return int(value) if float(value).is_integer() else float(value)
    return value.item() if isinstance(value, np.generic) else value


def _commands(grid: Grid, experiment: Any, folder: Path) -> dict[str, str]:
    """Return, per cell's name, the one command that runs it.

    A finished cell runs from its configuration beside the table; one that was never run, by the
    overrides of its experiment.
    """
    start = ["python", "train.py", *config_dir_words()]
    entered = f"experiment_name={experiment.name}"
    found: dict[str, str] = {}
    if hasattr(experiment, "grid"):
        for cell in cells(experiment):
            found[cell.name] = shlex.join([*start, *cell.overrides, entered])
    for name in grid.rows["cell"].astype(str):
        config = (folder / "configs" / f"{name}.yaml").as_posix()
        found[name] = shlex.join(["python", "train.py", f"config={config}", "force=true"])
    return found


def _embedded(data: dict[str, Any]) -> str:
    """Return JSON that no text within can end early."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
