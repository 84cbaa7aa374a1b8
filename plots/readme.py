"""`results/<experiment>/README.md`: the finding, every figure and table inline, the protocol."""

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from common import CONF_DIR
from experiments.d90 import finished, medians
from experiments.grid import BASELINE, Experiment, known_experiments
from plots import bits, d90_by_task, data, exponents, score, style, tables

LONG = 24  # longer tables are folded
MAX_COLUMNS = 13
ENOUGH_SEEDS = 3
MAX_COMMANDS = 3  # shown in the protocol
TABLES: dict[str, Any] = {  # the first paragraph of the function's docstring is the caption
    "learning_rates": tables.learning_rates, "score": score.frame, "d90": tables.d90,
    "flops": tables.flops, "costs": tables.cost_table, "exponents": exponents.exponents,
    "heads": tables.heads, "prefixes": tables.prefixes, "weights": bits.weights,
    "locality": tables.distances, "accuracy": tables.accuracy,
}  # fmt: skip


def write(
    experiment: Experiment,
    folder: Path,
    table: pd.DataFrame,
    records: data.Records,
    figures: Mapping[str, Any],
    built: Mapping[str, pd.DataFrame],
    scored: score.Scores | None = None,
) -> str:
    """The README in `folder`: `figures` (name to the function that drew it), `built` tables."""
    parts = [f"# {experiment.name}", experiment.description]
    if said := finding(experiment.facets, table, scored):
        parts.append(f"**{said}**")
    for name, draw in figures.items():
        caption = _caption(draw)
        parts += [f"![{name}](figures/{name}.png)", f"*{caption}*" if caption else ""]
    parts += [" ".join(filter(None, [shown(experiment.facets, table), exceptions(table)]))]
    looks = [style.task_look(task) for task in table["task"].unique()]
    units = ", ".join(f"{look.unit} ({look.label})" for look in looks if look.unit != "n")
    terms = [f"n counts {units}"] if units else []
    terms += ["L is the longest sequence"] if any("L" in frame for frame in built.values()) else []
    parts += ["## Tables", f"{'; '.join(terms)}." if terms else ""]
    for name, frame in built.items():
        parts += _table(name, frame, table, experiment.facets)
    published = folder.resolve().parent == CONF_DIR.parent / "results"
    parts += ["## Protocol", tables.markdown(protocol(experiment, table, records, published))]
    command = (
        f"python -m plots experiment={experiment.name} results_dir={os.path.relpath(folder.parent)}"
    )
    if experiment.grid and experiment.name not in known_experiments():
        command += " config_dir=DIR"
    page = Path("../../docs/columns.md")
    columns = f"[columns]({page})" if (folder / page).exists() else "columns: docs/columns.md"
    parts += [
        f"Made by `{command}` from [results.csv](results.csv), "
        "a row per evaluation with its accuracy, interval, seed, commit and device "
        f"({columns}), and [cells.jsonl](cells.jsonl), each cell's "
        "configuration, learning curve and errors."
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _caption(draw: Any) -> str:
    """The second paragraph of the docstring of the figure's module, else the function's."""
    paragraphs = (inspect.getdoc(inspect.getmodule(draw)) or "").split("\n\n")
    text = paragraphs[1] if len(paragraphs) > 1 else inspect.getdoc(draw) or ""
    return " ".join(text.split())


def _table(name: str, frame: pd.DataFrame, table: pd.DataFrame, facets: data.Facets) -> list[str]:
    body = tables.markdown(tables.printed(frame))
    caption = " ".join((inspect.getdoc(TABLES[name]) or "").partition("\n\n")[0].split())
    parts = [f"**{name}**: {caption}"]
    if name == "d90":
        wide = d90_by_task.listing(data.d90_of_groups(table, facets))
        if len(wide.columns) <= MAX_COLUMNS:
            parts.append(tables.markdown(wide))
    folded = len(frame) > LONG
    return [*parts, f"<details><summary>{len(frame)} rows</summary>\n\n{body}\n</details>"
            if folded else body]  # fmt: skip


def finding(facets: data.Facets, table: pd.DataFrame, scored: score.Scores | None = None) -> str:
    """The models' scores, or their D relative to standard attention's if the rows of a figure are
    models, in a sentence; else ""."""
    if scored and (said := score.headline(scored, set(table["model"]))):
        return said
    if not tables.sweeps_dim(table):
        return ""
    groups = data.times_standard(data.d90_of_groups(table, facets))
    beside = groups[groups["d90_base"].notna() & (groups["model"] != BASELINE)]
    known = (beside["low"] > 0) & (beside["low_base"] > 0)  # neither D90 is just a bound
    beside = beside.assign(times=beside["times"].where(known))
    compared = beside.groupby("row", sort=False)
    by_model = compared.ngroups == beside["model"].nunique()
    if not 1 <= compared.ngroups <= 3 or not by_model or not compared["times"].count().all():
        return ""
    return f"{'; '.join(_compared(str(row), rows) for row, rows in compared)}."


def _compared(row: str, rows: pd.DataFrame) -> str:
    """The D of one model relative to standard attention's, and how often it fails."""
    times, failed = rows["times"].dropna(), int(rows["d90"].isna().sum())
    span = "–".join(dict.fromkeys(f"{end:.3g}" for end in (times.min(), times.max())))
    known = f"in {len(times)} of {len(rows)} settings" * (len(times) < len(rows))
    notes = [known, f"fails at every D tried in {failed}" * (failed > 0)]
    noted = "; ".join(filter(None, notes))
    return f"{row} needs {span}× standard attention's D" + f" ({noted})" * bool(noted)


def protocol(
    experiment: Experiment, table: pd.DataFrame, records: data.Records, published: bool
) -> pd.DataFrame:
    """Commands, data, recipe, precision, device, time and commits, a row each."""
    commands = [f"python sweep.py experiment={experiment.name}"]
    if not published:
        known = (record.get("command") for record in records.values())  # older ones lack it
        commands = list(dict.fromkeys(filter(None, known)))
    configs = [records[cell]["config"] for cell in table["cell"] if cell in records]
    recipes = _distinct(config["recipe"] for config in configs)
    sets = _distinct(config["data"] for config in configs)
    done = finished(table)
    depths = done[["layers", "heads"]].drop_duplicates()
    rows = {
        "command": "; ".join(f"`{command}`" for command in commands)
                   if len(commands) <= MAX_COMMANDS else f"{len(commands)} (cells.jsonl)",
        "data": "; ".join([*dict.fromkeys(map(_sets, sets)), _tested(done)]),
        "recipe": "; ".join(_recipe([r for r in recipes if r["name"] == name])
                            for name in dict.fromkeys(r["name"] for r in recipes)),
        "layers, heads": "; ".join(data.words(depths, ["layers", "heads"])),
        "precision": _counts(done["precision"]),
        "device": _counts(done["device"]),
        "time": _hours(table),
        "commits": _commits(done),
    }  # fmt: skip
    shown = {name: text for name, text in rows.items() if text}
    return pd.DataFrame({"setting": shown.keys(), "value": shown.values()})


def _sets(of: Mapping[str, Any]) -> str:
    train = Path(of["train_file"]).name if of["train_file"] else f"{of['train']:,}"
    return f"{train} training, {of['validation']:,} validation sequences"


def _tested(done: pd.DataFrame) -> str:
    counts = sorted(done["n_test"].dropna().astype(int).unique())
    return f"{' or '.join(f'{count:,}' for count in counts)} test sequences"


def _distinct(settings: Any) -> list[dict[str, Any]]:
    return list({repr(sorted(item.items(), key=str)): item for item in settings}.values())


def _recipe(settings: Sequence[Mapping[str, Any]]) -> str:
    """The recipes of one name, by its main keys; values that differ are all listed."""
    parts = []
    for key in ("optimizer", "learning_rate", "batch_size", "steps", "epochs", "stop_at"):
        known = sorted({item[key] for item in settings if item.get(key) is not None})
        parts += [f"{key} {' or '.join(map(str, known))}"] if known else []
    return f"`{settings[0]['name']}`: {', '.join(parts)}"


def _counts(values: pd.Series) -> str:
    counts = values.dropna().value_counts()
    if len(counts) < 2:
        return ", ".join(map(str, counts.index))
    return ", ".join(f"{name} ({n} cell{'s' * (n > 1)})" for name, n in counts.items())


def _hours(table: pd.DataFrame) -> str:
    """Training and evaluation hours by kind of training device; each training run counts once."""
    devices = table["device"].fillna("").str.split("; ")
    kind = devices.map(lambda names: " and ".join(sorted({n.partition(":")[0] for n in names})))
    trained = table.drop_duplicates(["run", "train_seconds"])["train_seconds"]
    seconds = trained.groupby(kind).sum()
    seconds = seconds.add(table["eval_seconds"].groupby(kind).sum(), fill_value=0)
    words = {"cpu": "core-hours", "cuda": "GPU-hours"}
    return ", ".join(
        f"{total / 3600:.3g} {words.get(str(name), f'hours on {name}')}"
        for name, total in seconds.items()
        if name
    )


def _commits(done: pd.DataFrame) -> str:
    commits = done.sort_values("finished_at")["commit"].dropna().unique()
    if len(commits) <= 3:
        return ", ".join(commits)
    return f"{len(commits)}, from {commits[0]} to {commits[-1]} (column commit)"


def shown(facets: data.Facets, table: pd.DataFrame) -> str:
    """A sentence on the settings that the figures are limited to."""
    only = {data.column_of(k, table): v for k, v in (facets or {}).get("only", {}).items()}
    values = {k: v if isinstance(v, list) else [v] for k, v in only.items() if k in table}
    words = [", ".join(data.in_words(k, one) for one in v) for k, v in values.items()]
    what = "Figures, D90 and costs" if tables.sweeps_dim(table) else "Figures"
    return f"{what} show only {'; '.join(words)}." if words else ""


def exceptions(table: pd.DataFrame) -> str:
    """How many medians have few seeds, and how many cells are not done."""
    seeds = medians(table)["seeds"]
    said, few = [], int((seeds < ENOUGH_SEEDS).sum())
    if few:
        said.append(f"{few} of {len(seeds)} medians have fewer than {ENOUGH_SEEDS} seeds.")
    for status, part in table[table["status"] != "done"].groupby("status"):
        said.append(f"{str(status).capitalize()} cells: {len(part)}.")
    return " ".join(said)
