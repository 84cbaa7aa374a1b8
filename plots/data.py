"""Read an experiment's files into tidy frames, and assign rows to panels."""

import itertools
import math
import re
from collections.abc import Collection, Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from common import UserError, did_you_mean
from evaluation.state_format import parse_format
from experiments.d90 import finished, required, settings_of
from experiments.grid import BASELINE
from experiments.table import COLUMN_OF, MEASURED
from plots import style

FACETS = {"columns": ["task"], "rows": ["model"], "x": ["dim"], "y": ["size"]}
Facets = Mapping[str, Any] | None
Records = Mapping[str, Any]  # of cells, from `experiments.table.read_cells`
APART = ("recipe.learning_rate", "precision")  # have columns of their own in tables
STATE_FORMAT, WEIGHT_FORMAT = "measure.state_format", "measure.weight_format"
BESIDE_TASK = ("task.", "data.", "measure.", "format")  # settings that belong to columns


def read_speeds(folder: Path) -> pd.DataFrame | None:
    """`costs.csv`, timed by `benchmarks costs`, or None."""
    path = folder / "costs.csv"
    return pd.read_csv(path) if path.exists() else None


def select(known: Sequence[str], models: Sequence[str], exclude: Sequence[str]) -> list[str]:
    """`models` (all by default) except `exclude`; UserError for an unknown one or none left."""
    for name in (*models, *exclude):
        if name not in known:
            near = did_you_mean(name, known)
            raise UserError(f"model {name}: not in the table; known: {', '.join(known)}{near}")
    kept = [name for name in models or known if name not in exclude]
    if not kept:
        raise UserError("no model is left to draw")
    return kept


def facets_of(given: Facets, columns: Container[Any]) -> dict[str, list[str]]:
    """The facets with their defaults, each a list of a table's columns."""
    found = dict(FACETS)
    for name, value in (given or {}).items():
        if name == "only":
            continue
        if name not in FACETS:
            near = did_you_mean(name, FACETS)
            raise UserError(f"facets: {name}: unknown; known: {', '.join(FACETS)}, only{near}")
        keys = [column_of(key, columns) for key in ([value] if isinstance(value, str) else value)]
        found[name] = [key for key in keys if key in columns or "." not in key]  # else constant
    return found


def column_of(key: str, columns: Container[Any]) -> str:
    """The column of a grid's key: `layers` of model.num_layers."""
    short = {**COLUMN_OF, **MEASURED}
    return key if key in columns else short.get(key.removeprefix("measure."), key)


def check_facets(facets: Facets, columns: Collection[str]) -> None:
    """Raise UserError for an unknown facet, or a key that no table can have as a column."""
    only = (facets or {}).get("only", {})
    if not isinstance(only, dict):
        raise UserError(f"facets.only={only}: expected {{column: value}}")
    for key in itertools.chain(only, *facets_of(facets, columns).values()):
        if key not in columns and "." not in key:
            near = did_you_mean(key, columns)
            raise UserError(f"facets: {key}: no such column in the results{near}")


def finished_rows(table: pd.DataFrame, facets: Facets) -> pd.DataFrame:
    """The finished rows that match `only` of the facets; UserError if none does."""
    check_facets(facets, list(table.columns))
    rows, only = finished(table), (facets or {}).get("only", {})
    for name, wanted in only.items():
        if (key := column_of(name, rows)) in rows:
            rows = rows[rows[key].isin(wanted if isinstance(wanted, list) else [wanted])]
    if rows.empty:
        raise UserError(f"no finished row matches facets.only={only}")
    return rows


def panels(table: pd.DataFrame, facets: Facets = None) -> pd.DataFrame:
    """Finished rows with the labels of their panel and their place in it.

    `column` and `row` are words for the facets' settings, `x` and `y` the values on the axes. A
    setting that no facet names is added to a label if it distinguishes rows of one task (columns)
    or of one task and model (rows).
    """
    rows = finished_rows(table, facets)
    wanted = facets_of(facets, table)
    rows = rows.assign(x=_on_axis(rows, wanted["x"]), y=_on_axis(rows, wanted["y"]))
    named = [key for keys in wanted.values() for key in keys]
    rest = [key for key in (*settings_of(rows), "dim") if key not in named]
    return _with_labels(rows, wanted["columns"], wanted["rows"], rest)


def _on_axis(rows: pd.DataFrame, keys: list[str]) -> pd.Series:
    """Numeric settings as numbers; others, and those that some rows lack, in words."""
    if len(keys) == 1 and rows[keys[0]].dtype.kind in "if" and rows[keys[0]].notna().all():
        return rows[keys[0]]
    return words(rows, keys)


def labelled(table: pd.DataFrame, facets: Facets = None, apart: Sequence[str] = ()) -> pd.DataFrame:
    """Groups from `experiments.d90` with the labels `column` and `row`, as in `panels`, but no row
    is left out, and labels do not name the settings `apart`."""
    wanted, others = facets_of(facets, table), {*table} - {"task", "model", "size"}
    columns = ["task", *(key for key in wanted["columns"] if key in others)]
    rows = ["model", *(key for key in wanted["rows"] if key in others)]
    named = (*columns, *rows, "size", *apart)
    rest = [key for key in settings_of(table) if key not in named]
    return _with_labels(table, columns, rows, rest)


def _with_labels(
    rows: pd.DataFrame, columns: Sequence[str], down: Sequence[str], rest: Sequence[str]
) -> pd.DataFrame:
    """Add `column` and `row`, these settings in words and those of `rest` that tell rows apart,
    except numbers that follow from a task's size (LIS: `number_range`)."""
    sizes = rows.groupby(["task", "size"])
    rest = [
        key for key in rest
        if key == "size" or rows[key].dtype.kind not in "if"
        or sizes[key].nunique(dropna=False).max() > 1
    ]  # fmt: skip
    beside = [key for key in rest if key == "size" or key.startswith(BESIDE_TASK)]
    others = [key for key in rest if key not in beside]
    column = _label(rows, columns, beside, ["task"])
    return in_order(rows.assign(column=column, row=_label(rows, down, others, ["task", "model"])))


def varying(rows: pd.DataFrame, keys: Sequence[str]) -> list[str]:
    """The `keys` that have several values."""
    return [key for key in keys if key in rows and rows[key].nunique(dropna=False) > 1]


def join_baseline(groups: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Groups with the columns `names` of standard attention under the same settings, called
    NAME_base; nan if it did not run. Settings of which it has one value at a size may differ, such
    as a learning rate."""
    standard, place = groups["model"] == BASELINE, ["column", "size"]
    settings = [key for key in settings_of(groups) if not key.startswith(BESIDE_TASK)]
    settings = [key for key in settings if key not in ("task", "size", "model")]
    counts = groups[standard].groupby(place)[settings].nunique(dropna=False)
    several = groups[place].join(counts > 1, on=place)[settings].eq(True)
    keys = groups[place].join(groups[settings].astype(object).where(several))
    base = keys[standard].join(groups.loc[standard, list(names)]).drop_duplicates(list(keys))
    found = keys.merge(base, on=list(keys), how="left")[list(names)].add_suffix("_base")
    return groups.join(found.set_axis(groups.index))


def times_standard(groups: pd.DataFrame) -> pd.DataFrame:
    """Groups with `times`, their D90 over standard attention's (nan for itself), and `times_low` to
    `times_high`, what the two brackets allow."""
    found = join_baseline(groups, ["d90", "low", "high"])
    base = found.where(found["model"] != BASELINE)
    return found.assign(
        times=found["d90"] / base["d90_base"],
        times_low=found["low"] / base["high_base"],
        times_high=found["high"] / base["low_base"],
    )


def d90_of_groups(table: pd.DataFrame, facets: Facets = None) -> pd.DataFrame:
    """`experiments.d90.required` of the finished rows, labelled."""
    return labelled(required(finished_rows(table, facets)), facets)


def _label(
    rows: pd.DataFrame, keys: Sequence[str], others: Sequence[str], within: list[str]
) -> pd.Series:
    """The settings `keys` in words, and those of `others` that vary among rows that agree in
    `within`. A setting is added only for those tasks or models (the last of `within`) that have
    several values of it."""
    owner = rows[within[-1]]
    shown = rows.copy()
    for key in others:
        several = rows.groupby(within, dropna=False)[key].transform("nunique", dropna=False) > 1
        shown[key] = rows[key].astype(object).where(owner.isin(owner[several]), None)
    return words(shown, [*keys, *others])


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Sort rows by task, model and size: the paper's tasks first, your models after standard."""
    place = rows.copy()
    yours = [name for name in dict.fromkeys(rows["model"]) if name not in style.MODELS]
    for name, known in (("task", style.TASKS), ("model", [BASELINE, *yours, *style.MODELS])):
        place[name] = pd.Categorical(rows[name], list(dict.fromkeys([*known, *rows[name]])))
    if "row" in rows:
        place = place.assign(row=rows["row"].map(_natural), column=rows["column"].map(_natural))
    then = ["task", "model", "layers", "heads", "row", "size", "column", "dim", "seed"]
    by = [name for name in then if name in rows]
    return rows.loc[place.sort_values(by, kind="stable").index]


def _natural(text: str) -> tuple[str | float, ...]:
    """Sorts k = 2 before k = 10."""
    parts = re.split(r"(\d+\.?\d*)", text.replace(",", ""))  # words and numbers alternate
    return tuple(float(part) if i % 2 else part for i, part in enumerate(parts))


def words(rows: pd.DataFrame, keys: Sequence[str]) -> pd.Series:
    """The settings `keys` of each row in words, e.g. `Sparse, k = 2`."""
    parts = [[in_words(key, value) for value in rows[key]] for key in keys if key in rows]
    texts = [", ".join(filter(None, items)) for items in zip(*parts, strict=True)]
    return pd.Series(texts or "", rows.index, dtype=object)


_WORDS = {
    "model.mixer.window_blocks": "k = {}", "layers": "{} layers", "heads": "{} heads",
    "dim": "D = {}", "size": "n = {}", "recipe.learning_rate": "learning rate {}",
    "recipe": "{} recipe", "model.position": "{} positions", "model.mixer.A_range": "A in {}",
    "model.mixer.convolution": "{} convolution", "precision": "{}", "format": "{}",
    "task.monoid": "{}", "recipe.steps": "{} steps", "data.train": "{} sequences",
    WEIGHT_FORMAT: "weights in {}", "model.mixer.window": "{} keys",
}  # fmt: skip
_VALUES = {
    ("model.position", "none"): "no positions",
    ("model.position", "rope"): "rotary",
    ("model.position", "sinusoidal"): "sinusoidal",
    ("model.mixer.convolution", "silu"): "convolution",
    ("model.mixer.output_gate", "True"): "output gate",
    ("model.mixer.output_gate", "False"): "no output gate",
    ("model.mixer.scale", "sqrt"): "scores / √K",
    ("model.mixer.scale", "head_dim"): "scores / K",
    ("format", "cot"): "chain",
    ("format", "direct"): "no chain",
    ("format", "tagged"): "labels",
    ("format", "online"): "online chain",
    ("task.monoid", "A4xZ5"): "A4×Z5",
}


def in_words(key: str, value: Any) -> str:
    """A setting in words, empty for a missing value."""
    if value in ("", None) or (isinstance(value, float) and math.isnan(value)):
        return ""
    if key == "task":
        return style.task_look(str(value)).label
    if key == "model":
        return style.model_look(str(value)).label
    if key == STATE_FORMAT:
        return f"{parse_format(value).bits} bits ({value})"
    if (key, str(value)) in _VALUES:
        return _VALUES[key, str(value)]
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, int) and value >= 10_000:
        text = f"{value:,}"
    if key.endswith("file"):
        text = Path(text).name
    if key == "model.mixers":
        text = re.sub(r"[{}']|_target_': '[\w.]*\.", "", text)
    form = _WORDS.get(key, f"{key.rpartition('.')[2].replace('_', ' ')} {{}}")
    return form.format(text).removesuffix("s" * (text == "1"))


def axis_label(keys: Sequence[str]) -> str:
    known = {"dim": "embedding dimension D", "size": "problem size",
             "data.train": "training sequences"}  # fmt: skip
    return ", ".join(known.get(key, key.rpartition(".")[2].replace("_", " ")) for key in keys)


def recorded(rows: pd.DataFrame, records: Records, part: str) -> pd.Series:
    """Each row's `part` of its record: its config, curve or errors; {} without."""
    return rows["cell"].map(lambda cell: records.get(cell, {}).get(part) or {})
