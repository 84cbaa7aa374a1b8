"""Ranges and counts of costs in README and docs/findings are those of the committed table."""

import pandas as pd
import pytest

from config.identity import ROOT

NUMBERS = "none one two three four five six seven eight nine ten eleven twelve".split()
RESULTS = ROOT / "results/overnight"
SAVINGS = pd.read_csv(RESULTS / "figures/savings.csv")
SIZES = NUMBERS[len(pd.read_csv(RESULTS / "results.csv")[["task", "size"]].drop_duplicates())]


def ratios(model, currency, side="all"):
    """The model's cost over standard attention's at the sizes on one side of 1.

    ``cheaper``, ``dearer`` and ``open`` go by the whole bar, ``less`` and ``more`` by the point.
    """
    rows = SAVINGS[(SAVINGS["model"] == model) & (SAVINGS["currency"] == currency)]
    cheaper, dearer, less = rows["low"] > 1, rows["high"] < 1, rows["saved"] > 1
    kept = {"cheaper": cheaper, "dearer": dearer, "open": ~(cheaper | dearer),
            "less": less, "more": ~less, "all": less | ~less}  # fmt: skip
    return 1 / rows.loc[kept[side], "saved"]


def count(model, currency, side="all"):
    return NUMBERS[len(ratios(model, currency, side))]


def span(values, digits=1):
    return f"{values.min():.{digits}f} to {values.max():.{digits}f}"


def percent(values):
    return f"{100 * values.min():.0f} to {100 * values.max():.0f} %"


def saved_percent(values):
    ends = [f"{100 * (1 - value):.0f}" for value in sorted(values, reverse=True)]
    joined = " and ".join(ends) if len(ends) < 3 else f"{ends[0]} to {ends[-1]}"
    return f"{joined} %"


def over_standard():
    rows = SAVINGS[(SAVINGS["model"] == "Linear") & (SAVINGS["currency"] == "flops_total")]
    ratio = rows["dim"] / rows["standard_dim"]
    return f"{ratio.min():.2g} to {ratio.max():.2g} times"


def sizes_with_three_seeds():
    rows = pd.read_csv(RESULTS / "figures/cost_table.csv")
    rows = rows[rows["model"].isin(["Standard", "Linear"]) & (rows["state"] == "reached")]
    seeds = rows.groupby(["task", "size"])["seeds"].agg(["min", "size"])
    return NUMBERS[((seeds["min"] >= 3) & (seeds["size"] == 2)).sum()]


def in_readme():
    smaller, sizes = 1 / ratios("Linear", "state_bytes"), count("Linear", "flops_total")
    best = 100 * (1 - ratios("Linear", "flops_total").min())
    return [
        f"at {sizes} of {SIZES} sizes",
        f"(three seeds at {sizes_with_three_seeds()}, 16,000 steps)",
        f"needs {over_standard()} standard attention's D",
        f"It saves memory at all of them ({smaller.min():.1f} to {smaller.max():.0f}-fold)",
        f"time per token in batches at {count('Linear', 'tokens_per_second', 'cheaper')}, but",
        f"at {count('Linear', 'flops_total', 'dearer')} it costs over twice the FLOPs",
        f"at best {best:.0f} % fewer",
    ]


def in_findings():
    smaller, state = 1 / ratios("Linear", "state_bytes"), ("Sparse", "state_bytes")
    total, training = ("Linear", "flops_total"), ("Linear", "training_flops")
    tokens, alone = ("Linear", "tokens_per_second"), ("Linear", "answer_seconds")
    return [
        f"is {smaller.min():.1f} to {smaller.max():.0f} times smaller than standard attention's",
        f"at the {count(*total)} sizes of {SIZES}, up to",
        f"at {count('Linear', 'state_bytes', 'cheaper')} even allowing for the gaps",
        f"smaller at {count(*state, 'less')} sizes of {count(*state)}, "
        f"at {count(*state, 'cheaper')} allowing for the gaps",
        f"At {count(*total, 'dearer')} of the {count(*total)} sizes linear attention takes",
        f"takes {span(ratios(*total, 'dearer'))} times the total FLOPs",
        f"at the other {count(*total, 'open')}, {span(ratios(*total, 'open'))} times",
        f"more FLOPs at {count(*training, 'more')} sizes of {count(*training)}",
        f"writes {percent(1 / ratios(*tokens, 'cheaper') - 1)} more tokens a second",
        f"at {count(*tokens, 'cheaper')} sizes, fewer at {count(*tokens, 'dearer')}",
        f"{percent(ratios(*alone, 'dearer') - 1)} slower at {count(*alone, 'dearer')}",
        f"linear {over_standard()}, sparse",
    ]


def in_overnight():
    total, layers = ("Linear", "flops_total"), ratios("Linear", "flops_linear_layers", "dearer")
    tokens, alone = ("Linear", "tokens_per_second"), ("Linear", "answer_seconds")
    sparse = ratios("Sparse", "flops_total", "dearer")
    return [
        f"more at {count(*tokens, 'cheaper')} ({percent(1 / ratios(*tokens, 'cheaper') - 1)})",
        f"{fewer_tokens()} times as many at",
        f"{percent(ratios(*alone, 'dearer') - 1)} more at {count(*alone, 'dearer')}",
        f"{span(ratios(*total, 'dearer'))} times as many at {count(*total, 'dearer')} beyond",
        f"{span(ratios(*total, 'open'))} times at the others",
        f"{span(ratios('Sparse', 'answer_seconds'))} times as many",
        f"{sparse.min():.2g} to {sparse.max():.2g} times at {NUMBERS[len(sparse)]} beyond",
        f"{span(1 / ratios('Sparse', 'tokens_per_second'), 2)} times as many",
        f"never fewer; {layers.min():.0f} to {layers.max():.0f} times as many",
        f"never fewer, up to {ratios('Sparse', 'flops_linear_layers').max():.0f} times as many",
        *(training_cost(m, c) for m in ("Linear", "Sparse")
          for c in ("training_flops", "training_seconds")),
    ]  # fmt: skip


def fewer_tokens():
    *first, last = (f"{1 / cost:.2f}" for cost in ratios("Linear", "tokens_per_second", "dearer"))
    return f"{', '.join(first)} and {last}"


def training_cost(model, currency):
    more = span(ratios(model, currency, "more")).removesuffix(".0")
    return f"by {saved_percent(ratios(model, currency, 'less'))}; else {more} times"


CLAIMS = [
    (path, phrase)
    for path, phrases in (
        ("README.md", in_readme()),
        ("docs/findings.md", in_findings()),
        ("docs/findings/overnight.md", in_overnight()),
    )
    for phrase in phrases
]


@pytest.mark.parametrize(("path", "phrase"), CLAIMS)
def test_a_range_or_count_of_costs_is_the_tables(path, phrase):
    assert phrase in " ".join((ROOT / path).read_text().split())


def test_over_twice_the_flops_is_over_twice():
    assert ratios("Linear", "flops_total", "dearer").min() > 2


@pytest.mark.parametrize("model", ["Linear", "Sparse"])
@pytest.mark.parametrize("currency", ["flops_linear_layers", "answer_seconds"])
def test_what_is_never_saved_is_never_saved(model, currency):
    """The texts say never fewer FLOPs in linear layers, and never a faster answer alone."""
    assert ratios(model, currency, "cheaper").empty
