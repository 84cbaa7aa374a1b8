"""Sentences under the cost table: does the efficient model save computation, in which currency?"""

from __future__ import annotations

from typing import Any

import pandas as pd

from plots import least_dim_rows, style
from plots.currencies import CURRENCIES, comparable, compare
from plots.frontier import UNMEASURED
from plots.tabular import significant

BASELINE = "standard"  # what an efficient model would have to save against


def sentences(frame: pd.DataFrame) -> list[str]:
    """Say under each size what the efficient models save, and in which currencies; then sum up."""
    said = []
    for _, part in frame.groupby("group", sort=False):
        first = part.iloc[0]
        if part["state"].isin(UNMEASURED).all():
            continue
        same = frame[(frame["task"] == first["task"]) & (frame["size"] == first["size"])]
        varying = [key for key in ("layers", "heads", "recipe") if same[key].nunique() > 1]
        keys = [key for key in varying if part[key].nunique() == 1]
        words = [style.setting_label(key, first[key]) for key in keys]
        where = ", ".join([str(first["task"]), f"n = {first['size']}", *words])
        said.append(_sentence(where, part))
    return said + [_summary(frame, model) for model in _efficient(frame)]


def _efficient(frame: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(frame.loc[frame["name"] != BASELINE, "model"]))


def _sentence(where: str, part: pd.DataFrame) -> str:
    caveat = least_dim_rows.caveat(part)
    base, others = baseline_of(part), reached(part[part["name"] != BASELINE])
    if base is None or others.empty:
        who = " and ".join(reached(part)["model"]) or "no model"
        verb = "reach" if " and " in who else "reaches"
        return f"{where}: {who} {verb} 90 %, so no saving can be stated{caveat}."
    told = "; ".join(_saving(line, base) for _, line in others.iterrows())
    return f"{where}, against {base['model']} (D = {base['dim']}): {told}{caveat}."


def reached(part: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of models that reach 90 %."""
    return part[part["state"] == "reached"]


def baseline_of(part: pd.DataFrame) -> Any:
    """Return the row of a group that the others are held against, None where it has none."""
    standards = reached(part[part["name"] == BASELINE])
    if standards.empty:
        return None
    return standards.sort_values("flops_linear_layers", kind="stable").iloc[0]


def _saving(line: Any, base: Any) -> str:
    by_sign: dict[int, list[str]] = {1: [], 0: [], -1: []}
    lacking = []
    for name, currency in CURRENCIES.items():
        if pd.isna(line[name]) or pd.isna(base[name]) or _elsewhere(line, base, name):
            lacking.append(currency.words)
            continue
        sign = compare(line, base, name)
        high, low = sorted((line[name], base[name]), reverse=True)
        ratio = f" ({'÷' if sign > 0 else '×'} {_ratio(high / low)})" if sign else ""
        by_sign[sign].append(f"{currency.words}{ratio}")
    saved, same, dearer = (", ".join(by_sign[sign]) for sign in (1, 0, -1))
    text = f"{line['model']} (D = {line['dim']}) saves {saved or 'nothing'}"
    text += f", is as dear in {same}" if same else ""
    text += f", is dearer in {dearer}" if dearer else ""
    return text + (f", not measured: {', '.join(lacking)}" if lacking else "")


def _elsewhere(line: Any, base: Any, name: str) -> bool:
    """Tell whether seconds as run are of two devices: they are not compared."""
    return name == "seconds_as_run" and not comparable([line["trained_on"], base["trained_on"]])


def _ratio(ratio: float) -> str:
    return significant(ratio) if ratio >= 1.005 else "less than 1.01"


def _summary(frame: pd.DataFrame, model: str) -> str:
    counts = {name: [0, 0] for name in CURRENCIES}
    for _, part in frame.groupby("group", sort=False):
        base, own = baseline_of(part), reached(part[part["model"] == model])
        if base is None or own.empty:
            continue
        for name, count in counts.items():
            known = not pd.isna(own.iloc[0][name]) and not pd.isna(base[name])
            if known and not _elsewhere(own.iloc[0], base, name):
                count[0] += compare(own.iloc[0], base, name) > 0
                count[1] += 1
    told = [f"{CURRENCIES[n].words} at {a} of {b}" for n, (a, b) in counts.items() if b]
    if not told:
        return f"{model}: at no size do it and {style.model_label(BASELINE)} both reach 90 %."
    return f"{model} saves {', '.join(told)} sizes at which both reach 90 %."
