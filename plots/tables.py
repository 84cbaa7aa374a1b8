"""Tables, as frames of plain numbers and as text."""

import math
from typing import Any

import numpy as np
import pandas as pd

from experiments.config import measured_settings
from experiments.d90 import finished, required
from plots import bits, costs, d90_by_task, data, exponents, style, theory
from tasks.locality import locality
from tasks.task import build_task

NONE = "–"
GIGA = 1e9
LOCAL = {"ed", "ed_local"}  # tasks with a table of locality
RENAMED = {"recipe.learning_rate": "learning rate"}


def build(
    table: pd.DataFrame, speeds: pd.DataFrame | None, facets: data.Facets, records: data.Records
) -> dict[str, pd.DataFrame]:
    """Non-empty tables by name: accuracy, prefixes, learning_rates, d90, flops (the paper's
    Table 2), costs, exponents or heads, weights, locality. `records` are from
    `experiments.table.read_cells`."""
    found = {"accuracy": accuracy(table, facets, records)}
    if finished(table).groupby("model")["layers"].nunique().max() >= exponents.FEWEST:
        found["prefixes"] = prefixes(table, records)
    if "recipe.learning_rate" in data.facets_of(facets, table)["x"]:
        found["learning_rates"] = learning_rates(table, records)
    if sweeps_dim(table):
        found["d90"] = d90(table, facets)
        found["flops"] = flops(table, facets)
        found["costs"] = cost_table(table, speeds, facets)
        if finished(table).groupby("model")["heads"].nunique().max() >= exponents.FEWEST:
            found["heads"] = heads(table, facets)
        else:
            found["exponents"] = exponents.exponents(table, facets)
    if data.WEIGHT_FORMAT in table:
        found["weights"] = bits.weights(table)
    if records and set(table["task"]) >= LOCAL:
        found["locality"] = distances(table, records)
    return {name: frame for name, frame in found.items() if len(frame)}


def sweeps_dim(table: pd.DataFrame) -> bool:
    """Whether a model ran at several D, so that D90 makes sense."""
    done = finished(table)
    return len(done) > 0 and done.groupby(["task", "size", "model"])["dim"].nunique().max() > 1


def accuracy(
    table: pd.DataFrame, facets: data.Facets = None, records: data.Records | None = None
) -> pd.DataFrame:
    """Accuracy of every setting and D. Chain: share of exactly matching chains. By kind, where
    recorded: accuracy on each kind of instance, seeds pooled."""
    rows = data.labelled(finished(table), facets, data.APART)
    ends = ["answer_accuracy", "answer_accuracy_low", "answer_accuracy_high"]
    text = [
        f"{seed}: {100 * middle:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
        for seed, middle, low, high in zip(rows["seed"], *(rows[e] for e in ends), strict=True)
    ]
    errors = data.recorded(rows, records or {}, "errors")
    kinds = errors.map(lambda own: own.get("by_kind", {}))
    rows = rows.assign(text=pd.Series(text, rows.index, dtype=object), kinds=kinds)
    keys = ["column", "row", "size", "dim", *data.varying(rows, data.APART)]
    grouped = rows.groupby(keys, sort=False, dropna=False)
    frame = grouped.agg(
        seeds=("seed", "nunique"),
        median=("answer_accuracy", "median"),
        chain=("chain_exact_match", "median"),
        chance=("chance_accuracy", "mean"),
        kinds=("kinds", by_kind),
        each=("text", "; ".join),
    ).reset_index()
    for name in ("median", "chain", "chance"):
        frame[name] = 100 * frame[name]
    return frame.rename(
        columns={"column": "task", "row": "model", "size": "n", "dim": "D",
                 "median": "median %", "chain": "chain %", "chance": "chance %",
                 "kinds": "by kind %", "each": "each seed % [95 %]", **RENAMED}
    ).dropna(axis=1, how="all")  # fmt: skip


def by_kind(counts: pd.Series) -> str | None:
    """E.g. "no 90.1, yes 99.5", from [right, all] of each kind in each seed."""
    kinds = sorted(set().union(*counts))
    sums = [np.sum([seed.get(kind, [0, 0]) for seed in counts], axis=0) for kind in kinds]
    said = [f"{kind} {100 * a / b:.1f}" for kind, (a, b) in zip(kinds, sums, strict=True)]
    return ", ".join(said) or None


def learning_rates(table: pd.DataFrame, records: data.Records) -> pd.DataFrame:
    """Correct validation chains at the end of training, and steps; medians of the seeds. Chosen,
    if all rates have equally many seeds: the best after rounding to whole percent; ties go to the
    fewest steps."""
    rows = data.panels(table, {"x": ["recipe.learning_rate"], "y": []})
    curves = data.recorded(rows, records, "curve")
    ends = curves.map(lambda curve: curve.get("validation_chain_exact_match", [math.nan])[-1])
    rows = rows.assign(validation=100 * ends)
    grouped = rows.groupby(["column", "row", "x"], sort=False)
    frame = grouped.agg(
        seeds=("seed", "nunique"), median=("validation", "median"), steps=("steps", "median")
    ).reset_index()
    best = frame.assign(whole=-frame["median"].round()).sort_values(["whole", "steps"])
    chosen = best.drop_duplicates(["column", "row"]).index
    trials = frame.groupby(["column", "row"])["seeds"]
    fair = (trials.transform("size") > 1) & (trials.transform("nunique") == 1)
    frame["chosen"] = pd.Series(frame.index.isin(chosen), frame.index).where(fair, None)
    names = {"column": "task", "row": "model", "x": "learning rate", "median": "validation %"}
    return frame.round({"median": 1}).rename(columns=names)


def prefixes(table: pd.DataFrame, records: data.Records) -> pd.DataFrame:
    """n*, the longest prefix with each label right in 90 % of the test words, by number of layers
    (median of the seeds), and how often it doubles per layer, with a 95 % interval.

    The doublings are fitted to all seeds as in `plots.exponents`: for words right to their end, n*
    is only a lower bound.
    """
    rows = data.panels(table, {"x": ["layers"], "y": []})
    known = [errors.get("longest_prefix") for errors in data.recorded(rows, records, "errors")]
    rows = rows.assign(prefix=pd.to_numeric(pd.Series(known, rows.index))).dropna(subset="prefix")
    found, fits = [], []
    for (column, row), part in rows.groupby(["column", "row"], sort=False):
        whole = part["prefix"] >= part["size"]
        ends = zip(part["prefix"], (part["prefix"] + 1).where(~whole, np.inf), strict=True)
        fits.append(exponents.fit(tuple(2.0 ** part["layers"]), tuple(ends)) or [np.nan] * 3)
        by_layers = part.groupby("layers")["prefix"].median()
        counts = zip(by_layers.index, by_layers, strict=True)
        found.append(
            {"task": column, "model": row}
            | {data.in_words("layers", int(layers)): prefix for layers, prefix in counts}
        )
    return pd.DataFrame(found).join(pd.DataFrame(fits, columns=["doublings", "low", "high"]))


def d90(table: pd.DataFrame, facets: data.Facets = None) -> pd.DataFrame:
    """The bracket is (next smaller D tried, D90]. Median accuracy, chain (exact match) and success
    (share of seeds at 90 %) are those at D90, else at the largest D. Still improving: at the
    next smaller D, a seed gained over 2 points in the last fifth of its steps. × standard: D90
    relative to standard attention's in the same setting, with the interval that the two brackets
    allow."""
    groups = data.labelled(required(data.finished_rows(table, facets)), facets, data.APART)
    frame = data.times_standard(groups).sort_values(
        ["column", "size", "row"], kind="stable",
        key=lambda column: column if column.name == "size" else pd.factorize(column)[0],
    )  # fmt: skip
    return pd.DataFrame(
        {
            "task": frame["column"],
            "n": frame["size"],
            "L": frame["max_len"],
            "model": frame["row"],
            **{RENAMED.get(key, key): frame[key] for key in data.varying(frame, data.APART)},
            "D90": frame["d90"],
            "fails": frame["low"].replace(0, np.nan),
            "seeds": frame["seeds"],
            "median %": 100 * frame["accuracy"],
            "chain %": 100 * frame["chain_exact_match"],
            "success %": (100 * frame["success"]).round(0),
            "still improving": frame["still_improving"],
            "times": frame["times"].round(2),
            "times low": frame["times_low"].round(2),
            "times high": frame["times_high"].round(2),
            "the paper's D90": frame.apply(theory.paper_value, axis=1, known=theory.PAPER_D90),
            "chance %": 100 * frame["chance_accuracy"],
            "precision": frame["precision"],
        }
    )


def flops(table: pd.DataFrame, facets: data.Facets = None) -> pd.DataFrame:
    """GFLOPs of one forward pass over L tokens at D90, 2 per multiply-add. Linear layers: the
    paper's count as we read it; total: plus token mixing and head. Where D90 is only a bound, so
    are these.

    The paper's count is 2 * 12 * M * D^2 * L. Its own numbers stand beside ours where sizes match.
    """
    groups = data.d90_of_groups(table, facets)
    reached = groups["d90"].notna()
    blocks = {
        "linear layers": (groups["flops_linear_layers"] / GIGA).where(reached),
        "total": (groups["flops_total"] / GIGA).where(reached),
        "the paper": groups.apply(theory.paper_value, axis=1, known=theory.TABLE_2_GFLOPS),
    }
    parts = []
    for name, values in blocks.items():
        wide = d90_by_task.by_place(groups, values, "model")
        wide.insert(0, "GFLOPs", name)
        parts.append(wide.dropna(how="all", subset=wide.columns[2:]))
    return pd.concat(parts, ignore_index=True)


def heads(table: pd.DataFrame, facets: data.Facets) -> pd.DataFrame:
    """b of D90 ~ H^b, fitted to the brackets (log-logistic, interval-censored), with its 95 %
    interval. b would be 0.5 if the size of the state, about D²/H numbers, determined D90."""
    return exponents.exponents(table, facets, against="heads")


def cost_table(
    table: pd.DataFrame, speeds: pd.DataFrame | None, facets: data.Facets
) -> pd.DataFrame:
    """Costs at D90. Memory in float32, of sequences of L tokens; FLOPs of a forward pass over L
    tokens; training until 90 % of the validation chains are correct, in the median seed. Where
    D90 is only a bound, so are these."""
    known = costs.costs(table, speeds, facets)
    frame = known[["column", "size", "max_len", "row", "d90"]].set_axis(
        ["task", "n", "L", "model", "D90"], axis=1
    )
    for name, metric in costs.METRICS.items():
        if known[name].notna().any():
            frame[metric.heading] = known[name] / metric.unit
    return frame


def distances(table: pd.DataFrame, records: data.Records) -> pd.DataFrame:
    """m: the largest distance from a token to one it depends on, over 1,000 sequences; m, chain:
    the same, after the prompt only."""
    known = table[table["task"].isin(LOCAL)].drop_duplicates(["task", "size"])
    found = []
    for row in known.sort_values(["task", "size"]).to_dict("records"):
        config = records[row["cell"]]["config"]
        task = build_task(measured_settings(config["task"], config["measure"]["task"]))
        m, chain = locality(task)
        label = style.task_look(row["task"]).label
        found.append(
            {"task": label, "n": row["size"], "L": row["max_len"], "m": m, "m, chain": chain}
        )
    return pd.DataFrame(found)


def printed(frame: pd.DataFrame, bold: str = "**{}**") -> pd.DataFrame:
    """A table as text: three significant digits, a dash for missing values, your models bold."""
    if "yours" in frame:
        yours = frame["model"].where(~frame["yours"], frame["model"].map(bold.format))
        frame = frame.assign(model=yours).drop(columns="yours")
    if "fails" in frame:
        frame = frame.assign(fails=list(map(_bracket, frame["fails"], frame["D90"])))
        headings = {"fails": "bracket", "times": "× standard"}
        frame = frame.rename(columns={**headings, "times low": "low", "times high": "high"})
    if "low" in frame:
        name = next(n for n in ("× standard", "b", "doublings", "score") if n in frame)
        text = list(map(_interval, frame[name], frame["low"], frame["high"]))
        frame = frame.assign(**{name: text}).drop(columns=["low", "high"])
        frame = frame.loc[:, ~(frame.isna() | frame.isin(["", NONE])).all()]
    return frame.map(cell_text)


def _bracket(low: float, high: float) -> str:
    low_text = "0" if math.isnan(low) else f"{low:g}"
    return f"({low_text}, {'∞)' if math.isnan(high) else f'{high:g}]'}"


def _interval(value: float, low: float, high: float) -> str:
    """`1.5 (1.0 to 2.0)`, without the value if unknown."""
    if math.isnan(low) or (math.isnan(value) and not low > 0):
        return NONE
    ends = " to ".join(
        ("−∞" if end < 0 else "∞") if math.isinf(end) else f"{end:.3g}" for end in (low, high)
    )
    return f"{'' if math.isnan(value) else f'{value:.3g} '}({ends})".replace("-", "−")


def cell_text(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NONE
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if value == math.inf:
        return "∞"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)


def markdown(frame: pd.DataFrame) -> str:
    rows = [list(frame.columns), ["---"] * len(frame.columns), *frame.to_numpy().tolist()]
    return "".join(f"| {' | '.join(str(cell) for cell in row)} |\n" for row in rows)


def as_text(frame: pd.DataFrame, suffix: str) -> str:
    """A table as `csv` (all digits that matter), `md` or `tex`."""
    if suffix == "csv":
        return frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    if suffix == "tex":
        return printed(frame, "{}").to_latex(index=False, escape=True)
    return markdown(printed(frame))
