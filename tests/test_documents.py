"""Numbers in README and docs/ match the tables in results/.

`python tests/test_documents.py` updates the generated tables in the pages.
"""

import functools
import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from processes import ROOT

from cotcost import build
from experiments.d90 import bracket, medians, passes
from experiments.estimate import training_flops
from experiments.grid import cell_of, cells, load_experiment
from experiments.table import read_cells, read_table
from plots import score, style, theory
from plots.bits import bits, weights
from plots.costs import METRICS, costs, ratios
from plots.d90_by_task import by_place, d90_in_words, listing
from plots.data import d90_of_groups, finished_rows, read_speeds
from plots.exponents import exponents
from plots.tables import markdown
from tasks.task import build_task

HEAD = "tuned"  # the experiment that the headline is about
MODELS, PLACE = ("linear", "standard"), ["task", "size", "model"]
PAGE = ROOT / "docs/findings.md"
TEXT, README = (path.read_text(encoding="utf-8") for path in (PAGE, ROOT / "README.md"))


@functools.cache
def bounds_table():
    """Bits that counting requires, and bits in linear attention's state at its D90."""
    dims = groups(HEAD).query("model == 'linear'").set_index(["task", "size"])["d90"]
    rows = []
    for task, size in (("arithmetic", 6), ("arithmetic", 10), ("ed", 4), ("lis", 40)):
        words = [f"task={task}", f"task.size={size}"]
        needed = build_task(cell_of(words).config.task).state_bits()
        low, high = np.broadcast_to(needed, 2)
        look, line = style.task_look(task), []
        paper = theory.PAPER_D90["linear"].get(size) if task == "arithmetic" else None
        for dim in (dims[task, size], paper):
            model = dim and build(*words, "model=linear", f"model.dim={dim:g}")
            line.append(f"{8 * model.state_bytes(1):,} (D = {dim:g})" if dim else "–")
        span = f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"
        rows.append([f"{look.label}, {size} {look.unit}", span, *line])
    return table_of(["", "needed", "held at D90 here", "at the paper's D"], rows)


def frame_of(name):
    return read_table(ROOT / "results" / name)


@functools.cache
def facets_of(name):
    return load_experiment(name, None, ROOT / "results" / name).facets


@functools.cache
def groups(name):
    return d90_of_groups(frame_of(name), facets_of(name))


@functools.cache
def retried():
    """Medians with twice the steps below D90, by task, size, model, D."""
    rows = medians(frame_of("tuned_steps").query("`recipe.steps` > 16000")).set_index(PLACE)
    d90 = groups(HEAD).set_index(PLACE)["d90"]
    return rows[rows["dim"] < d90[rows.index]].set_index("dim", append=True)


def ratio_with_twice_the_steps(place):
    """Linear attention's inference FLOPs over standard's; ≤ or ≥ if no smaller D was tried."""
    flops, marks = [], ""
    for model, mark in (("linear", "≤ "), ("standard", "≥ ")):
        own = groups(HEAD).set_index(PLACE).loc[(*place, model)]
        tried = {row.Index[-1]: passes(row.accuracy) for row in retried().itertuples()
                 if row.Index[:-1] == (*place, model)}  # fmt: skip
        if own["low"] and own["low"] not in tried:
            return "–"
        dim = min((dim for dim in tried if tried[dim]), default=own["d90"])
        marks += mark if dim == min(tried, default=0) else ""
        flops.append(flops_at()[*place, model, dim])
    return "–" if marks == "≤ ≥ " else f"{marks}{flops[0] / flops[1]:.2f}"


@functools.cache
def flops_at():
    return frame_of(HEAD).groupby([*PLACE, "dim"])["flops_total"].first()


@functools.cache
def ratios_of(name):
    return ratios(frame_of(name), read_speeds(ROOT / "results" / name), facets_of(name))


def allowed_flops():
    """Linear attention's inference FLOPs over standard's by task and size: at D90, and the least
    and most that the brackets allow."""
    flops, found = flops_at(), {}
    for place, own in groups(HEAD).set_index("model").groupby(["task", "size"], sort=False):
        linear, standard = own.loc["linear"], own.loc["standard"]
        cost, base = flops[*place, "linear"], flops[*place, "standard"]
        ratio = cost[linear["d90"]] / base[standard["d90"]]
        least = cost.get(linear["low"], 0) / base[standard["d90"]]
        below = standard["low"] or standard["d90"]  # four heads allow no D below 4
        found[place] = ratio, least, cost[linear["d90"]] / base[below]
    return found


def accuracies(statistic, threshold=0.9):
    """The `answer_accuracy` of each model at each D by a statistic of its seeds, shifted so that
    `threshold` becomes 90 %, and inference FLOPs."""
    rows = finished_rows(frame_of(HEAD), {}).groupby([*PLACE, "dim"])
    rows = rows.agg({"answer_accuracy": statistic, "flops_total": "first"})
    return rows.assign(answer_accuracy=rows["answer_accuracy"] + (0.9 - threshold))


def flops_range(rows):
    """The least and most inference FLOPs at D90 of one model; four heads allow no D below 4."""
    found, flops = bracket(rows["answer_accuracy"].to_dict()), rows["flops_total"]
    if np.isnan(found.dim):
        return flops[found.low], np.inf
    return flops[found.dim] if found.low or found.dim == 4 else 0, flops[found.dim]


def savings(rows):
    """Places at which linear attention takes fewer inference FLOPs, and those where it might."""
    saves, unknown = set(), set()
    for place, own in rows.groupby(["task", "size"]):
        linear, standard = (flops_range(own.loc[(*place, model)]) for model in MODELS)
        if linear[1] < standard[0]:
            saves.add(place)
        elif linear[0] < standard[1]:
            unknown.add(place)
    return saves, unknown


def savings_table():
    """At how many sizes linear attention saves, by the meaning of D90."""
    by = {"median ≥ 90 %": ("median",), "mean ≥ 90 %": ("mean",), "best ≥ 90 %": ("max",)}
    by |= {f"median ≥ {part} %": ("median", part / 100) for part in (80, 85, 95)}
    row = {"seeds": "sizes"}
    for name, how in by.items():
        saves, unknown = savings(accuracies(*how))
        row[name] = f"{len(saves)}" + f" to {len(saves) + len(unknown)}" * bool(unknown)
    return table_of([*row], [[*row.values()]])


def d90_table():
    """D90, the seeds that pass there, and inference FLOPs, a row per problem size."""
    found = groups(HEAD)
    texts = [f"{d90_in_words(row)} ({row['success'] * row['seeds']:.0f}/{row['seeds']})"
             for row in found.to_dict("records")]  # fmt: skip
    table = by_place(found, texts, "D90").fillna("–").set_index("D90").T
    table = table.rename_axis("D90").reset_index()
    table.insert(1, "L", groups(HEAD).drop_duplicates(["task", "size"])["max_len"].to_numpy())
    times = ["{:.2f} ({:.2f} to {:.2f})".format(*times) for times in allowed_flops().values()]
    table["inference FLOPs, linear / standard"] = times
    table["twice the steps"] = [*map(ratio_with_twice_the_steps, allowed_flops())]
    return markdown(table).strip()


def erasing_table():
    """D90 of the problems on which line-erasing attention was measured, one per row."""
    table = listing(groups("erase")).set_index("D90").replace("", np.nan)
    erasing = table["Erasing"].fillna(table["Erasing, prompt kept"])
    table = table.assign(Erasing=erasing)[["Standard", "Erasing", "Linear"]]
    return markdown(table[erasing.notna()].fillna("–").reset_index()).strip()


def in_words(rows):
    """D90 of each row, e.g. `≤ 8, 16, > 96`."""
    return ", ".join(map(d90_in_words, rows.to_dict("records")))


def less(model, metric):
    """Factor by which the model costs less than standard attention, by size."""
    found = ratios_of(HEAD)
    return found.loc[(found["model"] == model) & (found["metric"] == metric), "saving"]


def costs_table():
    rows = []
    for name, metric in METRICS.items():
        words = [metric.label]
        for values in (less("linear", name), less("sparse", name)):
            ends = dict.fromkeys(f"{1 / value:.2g}" for value in (values.max(), values.min()))
            words.append(f"{' to '.join(ends)} times")
            words.append(f"{(values > metric.margin).sum()} of {len(values)} sizes")
        rows.append(words)
    return table_of(["cost", "linear", "saves at", "sparse", "saves at"], rows)


def table_of(head, rows):
    return markdown(pd.DataFrame(rows, columns=head)).strip()


def powers_table():
    """Exponents of attention time in layers, heads and tokens."""
    record = json.loads((ROOT / "benchmarks/records/heads.json").read_text())
    rows = [
        [f"K = {fit['K']}, {fit['calls']}",
         *(f"{fit[axis]:.2f} ± {fit[f'{axis}_±']:.2f}" for axis in ("layers", "heads", "tokens"))]
        for fit in record["exponents"]
    ]  # fmt: skip
    return table_of(["", "M", "H", "T"], rows)


TABLES = {
    "findings": {"d90": d90_table, "savings": savings_table, "costs": costs_table,
                 "bounds": bounds_table, "erasing": erasing_table},
    "heads": {"powers": powers_table},
}  # fmt: skip
PLACES = [(page, name) for page, tables in TABLES.items() for name in tables]


@pytest.mark.parametrize(("page", "name"), PLACES)
def test_table_matches_results(page, name):
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    assert f"<!-- {name} -->\n\n{TABLES[page][name]()}\n\n<!-- end -->" in text


def test_headline():
    d90 = groups(HEAD).set_index(PLACE)
    dims = d90["d90"].unstack()
    times, sparse = dims["linear"] / dims["standard"], dims["sparse"].dropna()
    every = len(times)
    tried = (d90.index.get_level_values("model") == "sparse").sum()
    assert times.notna().all() and (d90.query("model != 'sparse' and d90 > 4")["low"] > 0).all()
    saves = less("sparse", "flops_total") > 1.001
    assert len(sparse) == tried
    said = f"reaches 90 % at all {tried} sizes run and saves FLOPs at"
    assert f"Sparse attention {said} {saves.sum()} (D = 4, like standard's)." in TEXT
    assert f"Sparse attention saves at {saves.sum()} of {len(saves)}." in README
    assert dims.loc["lis", 5]["sparse"] == dims.loc["lis", 5]["standard"] == 4
    width = f"{times.min():.0f} to {times.max():.1f} times"
    assert f"Linear attention needs {width} standard attention's D." in TEXT
    assert f"is **{width}** standard attention's." in README
    state = less("linear", "state_bytes")
    alone = (less("linear", "memory") > 1.001).sum()
    at_d90 = costs(frame_of(HEAD), None, facets_of(HEAD)).set_index(PLACE)
    at_d90 = at_d90[["params", "state_bytes"]]
    more = at_d90.xs("linear", level="model") - at_d90.xs("standard", level="model")
    batch = math.ceil((-4 * more["params"] / more["state_bytes"]).max())  # break-even, of any size
    sizes = f"at {alone} sizes for one sequence, at all {every} from a batch of {batch} on."
    assert f"Weights and state together are smaller {sizes}" in TEXT
    of_64 = (4 * more["params"] + 64 * more["state_bytes"] < 0).sum()
    assert f"memory is smaller at {alone} sizes (batch 1), {of_64} (batch 64)." in README
    tokens = 1 / less("linear", "token_time")
    faster = f"to {tokens.max():.1f} times, at least 25 % less at {(tokens < 0.75).sum()} sizes."
    assert f"time per token (batch 64) is {tokens.min():.1f} {faster}" in README
    said = f"at least 25 % less at {(tokens < 0.75).sum()} sizes (10 %: {(tokens < 0.9).sum()})."
    assert f"Time per token (batch 64) is {said}" in TEXT
    training = 1 / less("linear", "training_flops")
    said = f"{training.min():.1f} to {training.max():.0f} times ({len(training)} sizes);"
    assert f"training {said}" in README
    assert f"{state.min():.1f} to {state.max():.0f} times smaller: with size" in TEXT
    by_task = ratios_of(HEAD).query("model == 'linear' and metric == 'state_bytes'")
    by_task = by_task.sort_values("size").set_index("task")["saving"]
    rise, fall = by_task["arithmetic"].to_list(), by_task["ed"].to_list()
    assert (min(rise), max(rise)) == (rise[0], rise[-1]) and fall == sorted(fall, reverse=True)
    ends = f"{rise[0]:.1f} rises to {rise[-1]:.0f} on Arithmetic, {fall[0]:.0f} falls to"
    assert f"{ends} {fall[-1]:.1f} on ED." in TEXT
    assert f"(on ED: {fall[0]:.0f} falling to {fall[-1]:.1f})" in README
    assert f"**{state.min():.1f} to {state.max():.0f} times** smaller" in README
    table = frame_of(HEAD)
    thousands = f"{table['params'].min():,} to {table['params'].max():,}"
    assert f"{thousands} parameters" in TEXT


def test_scores_of_mixers():
    scored = score.scores_of(load_experiment("suite"), frame_of("suite"))
    table = score.frame(scored).dropna(subset="score").set_index("model")
    best = table.drop(index="Standard")
    assert best["score"].min() >= 1
    said = [f"{name} ({row['score']:.2f})" for name, row in best.head(5).iterrows()]
    text = (ROOT / "docs/mixers.md").read_text(encoding="utf-8")
    tied = (best["low"] <= 1).sum()
    assert tied == 5 and f" {len(best) - tied} of {len(best)} score clearly worse**;" in text
    assert f"than standard attention, {len(best) - tied} of {len(best)} clearly worse." in TEXT
    assert f"include 1: {', '.join(said[:-1])} and {said[-1]}" in text
    found = ratios_of("suite")
    found = found[found["model"].isin([row["name"] for row in scored.rows if row["score"]])]
    saves = found.assign(saves=found["saving"] > 1.001).groupby("metric")["saves"]
    state, flops = (f"{saves.sum()[name]} of {saves.size()[name]}"
                    for name in ("state_bytes", "flops_total"))  # fmt: skip
    assert f"{state} pairs of mixer and task save state, {flops} inference FLOPs." in text


def test_bits():
    names = ("bits", "bits_mixers")
    found, word = (bits(frame_of(name), read_cells(ROOT / "results" / name)) for name in names)
    by_place = found.set_index(["task", "model", "size"])
    said = []
    for place, dim in ((("lis", "linear", 10), 32), (("arithmetic", "linear", 4), 24)):
        row = by_place.loc[place]
        assert row["dim"] == dim
        said += [f"{row['enough']:,.0f}", f"{row['needed_high']:.0f} needed)"]
    assert "rounded to {} bits ({}, linear attention still answers 90 %".format(*said[:2]) in TEXT
    end = "; {} suffice for 4-operator Arithmetic (D = 24; {}.".format(*said[2:])
    assert "LIS (D = 32, two seeds)" + end in TEXT
    each = weights(frame_of("bits"))["bits"]
    assert f"training, weights need {each.min():.0f} to {each.max():.0f} bits each" in TEXT
    word = word.set_index("model")
    enough = word["enough"].dropna()
    assert (enough.idxmin(), enough.idxmax()) == ("lstm", "taylor")
    needed = f"{word['needed_high'].max():.0f} bits"
    passed = f"{needed}, {len(enough)} of {len(word)} mixers pass at D = 24 (two seeds),"
    assert f"{passed} with {enough.min():,.0f} (LSTM) to {enough.max():,.0f} bits (Taylor)" in TEXT


def test_online():
    d90 = groups("online").query("task == 'word'")
    d90 = d90.set_index(["model", "format", "measure.state_format"]).sort_index()
    whole = ["float32"]
    linear, lstm = (d90.xs("online", level="format").loc[model] for model in ("linear", "lstm"))
    assert in_words(linear.loc[whole]) == in_words(lstm.loc[whole]) == "≤ 8"
    after = [in_words(d90.loc[(model, "cot")].loc[whole]) for model in ("linear", "lstm")]
    assert f"needs D ≤ 8 (linear and LSTM) instead of {after[0]} and {after[1]}" in TEXT


def test_erasing():
    d90 = groups("erase").query("task == 'arithmetic' and size > 3")
    d90 = d90.set_index(["model", "size"])["d90"]
    assert d90["last_lines"].to_dict() == {4: 16, 6: 16, 8: 16}
    found = ratios_of("erase").query("metric == 'state_bytes' and model == 'last_lines'")
    found = found[found["task"].isin(["arithmetic", "ed_local"])]
    places = found[["task", "size", "d90_base"]].to_numpy()
    keys = ["task", "size", "dim", "model"]
    accuracy = medians(frame_of("erase")).set_index(keys)["accuracy"]
    assert all(accuracy[*place, "last_lines"] >= 0.9 for place in places)
    state = frame_of("erase").groupby(keys)["state_bytes"].first()
    every = [state[*place, "standard"] / state[*place, "last_lines"] for place in places]
    least = f"{min(every):.3g} to {max(every):.1f}"
    assert f"D90 with {least} times less state;" in TEXT
    flops = flops_at()["arithmetic", 13]
    lower = frame_of("table2_below").query("size == 13 and model == 'linear'").squeeze()
    said = f"D = {lower['dim']} reaches only {100 * lower['answer_accuracy']:.0f} % at 13 ([one"
    config = read_cells(ROOT / "results/table2_below")[lower["cell"]]["config"]
    assert said in TEXT and config["recipe"]["learning_rate"] == 0.01
    below = groups("table2_below").query("model == 'standard'").set_index("size")["d90"]
    assert f"standard attention needs {below[6]:g} at 6 (one seed)" in TEXT
    six = flops_at()["arithmetic", 6]
    assert six["linear", 24] < six["standard", below[6]]
    assert flops["standard", 24] < flops["linear", 48]
    assert f"at standard attention's D90, with **{least} times** less state;" in README


def test_flop_savings_within_d90_brackets():
    allowed = allowed_flops()
    loses = sum(least > 1 for _, least, _ in allowed.values())
    within = [ratio for ratio, least, most in allowed.values() if least <= 1 <= most]
    assert loses + len(within) == len(allowed)  # no saving exceeds a grid step
    fewer = sum(ratio < 1 for ratio in within)
    said = "inear attention takes fewer inference FLOPs than standard attention at"
    every, lost = len(allowed), len(within) - fewer
    assert f"l{said} **{fewer} of {every}** problem sizes; with" in README
    assert f"could flip all {fewer} savings and {lost} losses." in README
    assert f"L{said} {fewer} of {every} sizes, more at {every - fewer}. One step of the" in TEXT
    assert f"could reverse all {fewer} savings and {lost} losses." in TEXT
    below = medians(frame_of(HEAD)).set_index([*PLACE, "dim"])["seeds"]
    for row in groups(HEAD).query("model == 'linear'").itertuples():
        place = row.task, row.size
        assert allowed[place][1] <= 1 or below[*place, "linear", row.low] >= 3
    saved = {place for place, (ratio, _, _) in allowed.items() if ratio < 1}
    assert savings(accuracies("median")) == (saved, set())
    by_task = [", ".join(f"{ratio:.2g}" for place, (ratio, _, _) in allowed.items()
                         if place[0] == task) for task in ("ed", "lis")]  # fmt: skip
    assert "on ED ({} times) and LIS ({}), not on Arithmetic.".format(*by_task) in README
    assert (groups(HEAD).query("model == 'linear'")["seeds"] >= 3).all()
    times = [ratio for ratio, _, _ in allowed.values()]
    assert f"{min(times):.2f} to **{max(times):.1f} times** the FLOPs," in README


def test_seeds_that_split():
    """Each saving rests on a D at which the seeds split."""
    seeds = medians(frame_of(HEAD)).set_index([*PLACE, "dim"])
    seeds["won"] = (seeds["success"] * seeds["seeds"]).round()
    sixteen = seeds.loc[[("arithmetic", size, "standard", 16) for size in (4, 6, 8, 13)]]
    assert (sixteen["seeds"] == 5).all()
    assert sixteen["won"].tolist() == [2, 3, 3, 2]
    assert "D = 16 with 4 and 13 operators (at 6 and 8, it passes three to two)." in TEXT
    found = groups(HEAD).set_index(PLACE)
    split = {}
    for place in savings(accuracies("median"))[0]:
        edges = [(model, dim) for model in MODELS
                 for dim in found.loc[(*place, model)][["low", "d90"]]]  # fmt: skip
        rows = seeds.loc[[(*place, *edge) for edge in edges]]
        near = (rows["won"] - rows["seeds"] / 2).abs() < 1
        split[place] = [row[2:] for row in rows.index[near]]
    assert split == {
        ("arithmetic", 4): [("standard", 16)], ("arithmetic", 13): [("standard", 16)],
        ("ed", 2): [("linear", 12), ("standard", 12)],
    }  # fmt: skip
    flops, times = flops_at(), []
    for *place, dim in (("arithmetic", 6, 24), ("lis", 5, 8)):
        assert seeds.loc[(*place, "standard", found["d90"][*place, "standard"]), "won"] == 3
        linear = flops[*place, "linear", found["d90"][*place, "linear"]]
        times.append(linear / flops[*place, "standard", dim])
    assert "(6 operators: {:.2f}; five numbers: {:.2f})".format(*times) in TEXT
    assert "All three savings rest on seeds split three to two: both models' D90 on two" in TEXT


def test_larger_dims_that_fail():
    rows = medians(frame_of(HEAD)).merge(groups(HEAD)[["task", "size", "model", "d90"]])
    above = rows[rows["dim"] >= rows["d90"]]
    fails = above[~above["accuracy"].map(passes)][["task", "size", "model", "dim", "seeds"]]
    assert fails.to_numpy().tolist() == [["ed", 2, "sparse", 64, 3], ["ed", 3, "sparse", 64, 1]]
    assert "its D90 (D = 64: two letters, three seeds; three letters, one seed)." in TEXT


def test_share_of_mixing():
    rows = groups(HEAD).query("model == 'standard'")
    pairs = rows["max_len"] * (rows["max_len"] + 1) / 2
    share = 100 * 4 * 3 * rows["d90"] * pairs / rows["flops_total"]
    said = f"Token mixing is {share.min():.0f} to {share.max():.0f} % of standard attention's"
    assert said in TEXT
    rest = rows["flops_total"] - 12 * rows["d90"] * pairs
    flops = [flops_at().get((*row[PLACE], row["low"]), math.nan) for _, row in rows.iterrows()]
    step = rest / (flops - 12 * rows["low"] * pairs)
    said = f"to D90, the rest grows {step.min():.1f} to {step.max():.1f} times."
    assert f"from the D below D90 {said}" in TEXT


def in_brief(row):
    """An exponent and its interval."""
    words = f"{row.b:.2f} ({row.low:.2f} to {row.high:.2f})"
    return words.replace("inf", "∞").replace("-", "−")


def test_claims():
    """Evidence on the paper's claims."""
    own, sizes = groups(HEAD), (6, 10, 13)
    d90 = own[own["task"] == "arithmetic"].set_index(["model", "size"])["d90"]
    largest = in_words(groups("table2_below").query("size == 16"))
    for model, last in (("standard", f"{largest} (one seed)"), ("linear", "–")):
        said = " | ".join(f"{d90[model, size]:g}" for size in sizes)
        assert f"| {model}, here | {said} | {last} |" in TEXT
    once = medians(frame_of("table2")).query("model == 'sparse'")
    once = once[once["accuracy"].map(passes)].groupby("size")["dim"].min()
    said = f"{d90['sparse', 6]:g} | {d90['sparse', 10]:g} | {once[13]} ([one seed]("
    assert f"| sparse, here | {said}../results/table2/README.md)) | – |" in TEXT
    for model, dims in theory.PAPER_D90.items():
        assert f"| {model}, paper | {' | '.join(map(str, dims.values()))} |" in TEXT
    times = [f"{allowed_flops()['arithmetic', size][0]:.2f}" for size in sizes]
    longer = ", ".join(ratio_with_twice_the_steps(("arithmetic", size)) for size in sizes)
    total = f"{', '.join(times)} times standard's at 6, 10, 13 operators; with twice the steps,"
    assert f"linear's total: {total} {longer} |" in TEXT
    powers = exponents(frame_of(HEAD), facets_of(HEAD)).set_index(["model", "task"])
    for model in ("Standard", "Linear"):
        places = [(model, task) for task in ("Arithmetic", "ED", "LIS")]
        said = " | ".join(map(in_brief, powers.loc[places].itertuples()))
        assert f"| {model.lower()}, here | {said} |" in TEXT
    sparse = powers.loc[[("Sparse", "Arithmetic")]]
    assert f"b = {in_brief(next(sparse.itertuples()))}" in TEXT
    larger = exponents(frame_of("table2_below")).query("model == 'Standard'")
    said = "[6 to 16 operators](../results/table2_below/README.md), rate 0.01, one seed: b = "
    assert said + in_brief(next(larger.itertuples())) in TEXT
    for task, name in (("arithmetic", "Arithmetic"), ("ed", "ED"), ("lis", "LIS")):
        by_model = own[own["task"] == task].groupby("model")
        ends = (in_words(by_model.get_group(model).iloc[[0, -1]]) for model in MODELS)
        said, standard = (words.replace(",", " to") for words in ends)
        assert f"{said} ({standard}) on {name}" in TEXT

    best = medians(finished_rows(frame_of(HEAD), facets_of(HEAD)))
    best = best.groupby(PLACE)["accuracy"].max()
    said = f"{(best >= 0.95).sum()} of {len(best)} combinations of task, size and model reach 95 %;"
    largest = frame_of(HEAD).groupby(PLACE)["dim"].max()
    none_above = largest == own.set_index(PLACE)["d90"][largest.index]
    assert f"{said} {none_above[best < 0.95].sum()} others ran at no D above D90" in TEXT
    local = groups("overnight_local").query("size == 4")
    pairs = [f"{model} {in_words(local[local['model'] == model])}".replace(",", " →")
             for model in ("linear", "sparse", "standard")]  # fmt: skip
    assert ", ".join(pairs) in TEXT
    depth = groups("overnight_depth")
    depth = depth[(depth["model.mixer.window_blocks"].fillna(1) == 1) & (depth["size"] == 4)]
    for model in ("linear", "sparse", "standard"):
        rows = depth[depth["model"] == model]
        three, five = (in_words(rows[rows["layers"] == layers]) for layers in (3, 5))
        assert f"{model} {three} → {five}" in TEXT


def test_seeds_of_match3():
    rows = frame_of("match3").query("model == 'tensor' and dim == 32")
    seeds = 100 * rows.groupby("model.mixer.scale")["answer_accuracy"].agg(["median", "min", "max"])
    root, whole = seeds.loc["sqrt"], seeds.loc["head_dim"]
    said = "reaches {:.0f} % (seeds: {:.0f} to {:.0f} %) with scores divided by √K (K: head width)"
    assert f"{said}, {{:.0f}} % ({{:.0f}} to {{:.0f}} %) by K;".format(*root, *whole) in TEXT
    rows = frame_of("match3").query("model == 'standard'")
    best = 100 * rows.groupby(["layers", "dim"])["answer_accuracy"].median().max()
    assert f"; standard attention reaches {best:.0f} %" in TEXT


def test_heads():
    """Linear attention's state at D90 by number of heads, and its success rate on ED."""
    text = (ROOT / "docs/heads.md").read_text(encoding="utf-8")
    state = groups("heads").set_index(["task", "model", "heads"])["state_bytes"]
    less = [state[task, "linear", 1] / state[task, "linear", 8] for task in ("arithmetic", "ed")]
    assert f"hold {less[0]:.1f} (Arithmetic) and {less[1]:.0f} (ED) times less state" in text
    runs = frame_of("heads").query("task == 'ed' and model == 'linear' and dim <= 48")
    passed = (runs["answer_accuracy"] >= 0.9).groupby(runs["heads"]).agg(["sum", "size"])
    assert passed["size"].unique().tolist() == [12]
    said = "On ED, {}, {}, {} and {} of 12 runs with D ≤ 48 pass with".format(*passed["sum"])
    fall = runs.groupby(["heads", "dim"])["answer_accuracy"].median().unstack()
    assert (fall[32] < fall[24]).tolist() == [True, True, True, False] and said in text
    d90 = groups("heads").set_index(["task", "model", "heads"])["d90"].unstack()[[1, 8]]
    said = "Arithmetic ({:g} to {:g}) and lower it on ED ({:g} to {:g}; [heads]"
    dims = d90.loc[[("arithmetic", "linear"), ("ed", "linear")]].to_numpy().ravel()
    assert said.format(*dims) in TEXT


def test_twice_the_steps():
    longer, allowed = retried(), allowed_flops()
    failing = groups(HEAD).set_index(PLACE)["low"]
    edges = longer[[row[-1] == failing[row[:-1]] for row in longer.index]]
    won = (edges["success"] * edges["seeds"]).round()
    agree = np.maximum(won, edges["seeds"] - won)
    saved, _ = savings(accuracies("median"))
    last = [("ed", 6), ("lis", 40)]  # not yet two seeds that agree
    least = [3 if place[:2] in saved else 2 - (place[:2] in last) for place in edges.index]
    assert (agree >= least).all() and edges["seeds"].max() == 5
    assert set(edges[edges["seeds"] == 1].index.droplevel([2, 3])) == {*last}
    said = f"retried {len(edges)} with [twice the steps](../results/tuned_steps/README.md)"
    passed = edges["accuracy"].map(passes).groupby("model").agg(["sum", "size"])
    by = "{} of standard attention's {} pass, {} of linear's {} (8 operators, ED 6, LIS 40)."
    by = by.format(*passed.loc["standard"], *passed.loc["linear"])
    assert f"D, we {said} (ED 6, LIS 40: one or two seeds; others: two to five); {by}" in TEXT
    wins = edges[edges["accuracy"].map(passes)].query("model == 'linear'").index
    assert {*wins} == {
        ("arithmetic", 8, "linear", 24),
        ("ed", 6, "linear", 96),
        ("lis", 40, "linear", 48),
    }
    ratios = {place: ratio_with_twice_the_steps(place) for place in allowed}
    ran = {place: float(ratio.split()[-1]) for place, ratio in ratios.items()
           if not ratio.startswith(("–", "≤"))}  # fmt: skip
    assert saved < {*ran} and min(ran.values()) > 1
    assert {*allowed} - {*ran} == {*last}
    said = f"With twice the steps, it saves at 0 of {len(ran)} sizes (ED 6 and LIS 40"
    assert f"{said} undecided)." in TEXT
    assert f"; with twice the training steps, at 0 of {len(ran)}." in README


def agreed(model):
    """For each size, whether three seeds agree at D90 and at the next smaller D tried."""
    found = medians(frame_of(HEAD)).set_index([*PLACE, "dim"])
    passed = (found["success"] * found["seeds"]).round()
    most = np.maximum(passed, found["seeds"] - passed)
    own = groups(HEAD).query("model == @model and d90.notna()").set_index(PLACE)
    return [min(most.get((*place, dim), 0) for dim in (row["low"] or row["d90"], row["d90"])) >= 3
            for place, row in own.iterrows()]  # fmt: skip


def test_limits():
    every = [groups(name) for name in (HEAD, "heads", "suite")]
    runs = pd.concat(every).query("not (task == 'mqar' and size == 9)")  # same runs as MQAR 8
    said = []
    for model in ("standard", "linear"):
        seeds = runs[(runs["model"] == model) & (runs["seeds"] >= 3) & runs["d90"].notna()]
        missed, trained = (1 - seeds["success"]) @ seeds["seeds"], seeds["seeds"].sum()
        said += [f"{missed:.0f} of {trained}"]
    ends = f"runs of standard attention and {said[1]} of linear attention stay below 90 %"
    assert f"{said[0]} {ends}" in TEXT
    edges = every[0].query("low > 0 and d90.notna()")
    assert f"of the {len(edges)} next smaller D, we retried" in TEXT
    lis = groups(HEAD).query("task == 'lis' and d90.notna()")["chain_exact_match"]
    chains = f"{100 * lis.min():.0f} to {100 * lis.max():.0f} % of chains are correct"
    assert f"on LIS at D90, {chains}" in TEXT
    ran = {cell for folder in (ROOT / "results").iterdir() for cell in read_cells(folder)}
    planned = [[cell.name for cell in cells(load_experiment(name))]
               for name in ("figure1", "figure2", "figure3")]  # fmt: skip
    figures = set().union(*planned)
    assert f"full size ({len(ran & figures)} of {len(figures)} cells)" in TEXT
    table2 = {(cell.identity["size"], cell.identity["model"], cell.identity["dim"])
              for cell in cells(load_experiment("table2"))}  # fmt: skip
    done = pd.concat(map(frame_of, ("table2", "table2_below")))[["size", "model", "dim"]]
    left = table2.difference(done.itertuples(index=False, name=None))
    assert f"{len(left)} of {len(table2)} settings of Table 2" in TEXT
    table = frame_of(HEAD)
    full = agreed("linear") + agreed("standard") + agreed("sparse")
    assert all(full) and f"at the next smaller D, for all {len(full)} D90s." in TEXT
    first = finished_rows(table.query("seed < 3"), {}).groupby([*PLACE, "dim"])
    before, _ = savings(first.agg({"answer_accuracy": "median", "flops_total": "first"}))
    left = len(before & savings(accuracies("median"))[0])
    said = f"three seeds alone also give {len(before)} savings, but only {left} of these three."
    assert said in TEXT
    same_rate = ratios_of("overnight").query("model == 'linear' and metric == 'flops_total'")
    saves = f"saves at {(same_rate['saving'] > 1.001).sum()} of {len(same_rate)} sizes"
    assert f"At 0.01 for all, linear attention {saves} (`overnight`)." in TEXT
    assert set(table["precision"]) == {"float32"}
    assert f"L is up to {table['max_len'].max()}" in TEXT
    edges = groups("precision").fillna({"d90": np.inf}).query("low > 0")
    keys = ["task", "size", "format", "model"]
    d90 = edges.pivot(index=keys, columns="precision", values="d90").dropna()
    d90 = d90[np.isfinite(d90).any(axis=1)]
    moved = (d90["bfloat16"] != d90["float32"]).sum()
    assert f"[{moved} of {len(d90)} D90s]" in TEXT
    rows = medians(frame_of("precision")).query("task == 'word' and format == 'cot' and dim == 12")
    low, high = 100 * rows.query("model == 'linear'")["accuracy"].sort_values()
    assert f"a word problem: {low:.0f} instead of {high:.0f} % at D = 12" in TEXT
    seen = pd.concat(map(frame_of, ("table2", "table2_below")))
    longest = seen.query("model == 'standard'")["max_len"].max()
    assert f"({longest} for standard attention alone)" in TEXT


def test_gpu_hours_of_the_papers_recipe():
    cell = cells(load_experiment("table2"))[0]
    paper = cell_of([*cell.overrides, "recipe=paper", "recipe.stop_at=null"])
    times = training_flops(paper) / training_flops(cell)
    assert f"early stopping; {times:.0f} times as many with the paper's" in README


def test_core_hours():
    said = re.findall(r"experiment=(\w+)` \| (\d+) (?:core-)?hours \|", README)
    assert len(said) == README.count(" core-hours |") + 1
    for name, hours in said:
        grid = {cell.name for cell in cells(load_experiment(name))}
        rows = frame_of(name)
        rows = rows[rows["cell"].isin(grid)].drop_duplicates("run")
        assert f"{rows[['train_seconds', 'eval_seconds']].sum().sum() / 3600:.0f}" == hours


if __name__ == "__main__":
    for page, name in PLACES:
        path = ROOT / f"docs/{page}.md"
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        table = TABLES[page][name]()
        text = marked.sub(lambda m, table=table: f"{m[1]}\n{table}\n\n{m[2]}", path.read_text())
        path.write_text(text, encoding="utf-8")
