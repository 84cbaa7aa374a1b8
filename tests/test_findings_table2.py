"""What docs/findings says of FLOPs and costs at the paper's own sizes is what the tables give."""

import pandas as pd
import pytest

from config.identity import ROOT

SAVINGS = pd.read_csv(ROOT / "results/table2_below/figures/savings.csv")
OVERNIGHT = pd.read_csv(ROOT / "results/overnight/results.csv")


def at_six_operators(model, dim, currency):
    """FLOPs over standard attention's at D = 24, by the recipe's rate, and at 16, by half of it."""
    rows = OVERNIGHT.query("task == 'arithmetic' and size == 6")
    costs = rows.drop_duplicates(["model", "dim"]).set_index(["model", "dim"])[currency]
    return [costs[(model, dim)] / costs[("standard", other)] for other in (24, 16)]


def saving(model, currency, operators=10):
    """The row of the savings at one of the paper's sizes."""
    rows = SAVINGS[(SAVINGS["size"] == operators) & (SAVINGS["model"] == model)]
    return rows.set_index("currency").loc[currency]


def rounded(value, digits):
    """A half goes up, as readers round: 2.25 is 2.3."""
    return f"{value + 1e-9:.{digits}f}".removesuffix(".0")


def either(values, digits):
    return " or ".join(rounded(value, digits) for value in values)


def claim_of_table_2():
    layers, total = "flops_linear_layers", "flops_total"
    linear, sparse = 1 / saving("Linear", layers)["saved"], 1 / saving("Sparse", layers)["saved"]
    yield (
        f"linear layers: linear {either(at_six_operators('linear', 24, layers), 1)} times "
        f"standard's at 6 operators (standard at 24 or 16), {rounded(linear, 1)} at 10; "
        f"sparse {either(at_six_operators('sparse', 48, layers), 1)}, {rounded(sparse, 1)}"
    )
    linear, sparse = 1 / saving("Linear", total)["saved"], 1 / saving("Sparse", total)["saved"]
    yield (
        f"In total: linear {either(at_six_operators('linear', 24, total), 1)}, "
        f"{rounded(linear, 2)}; sparse {either(at_six_operators('sparse', 48, total), 1)}, "
        f"{rounded(sparse, 1)}"
    )


def on_the_grid(low, high, digits=1):
    return f"{low:.{digits}f} to {high:.{digits}f} on the grid"


def total_flops(row):
    grid = on_the_grid(1 / row["high"], 1 / row["low"])
    return f"{1 / row['saved']:.2f} times the total FLOPs ({grid})"


def linear_at_six_operators():
    training = saving("Linear", "training_flops", 6)
    yield f"takes {total_flops(saving('Linear', 'flops_total', 6))}"
    yield f"and {1 / training['saved']:.1f} times the training FLOPs"


def linear_at_ten_operators():
    state = saving("Linear", "state_bytes")
    yield (
        f"linear attention at {state['dim']:.0f} against standard attention at "
        f"{state['standard_dim']:.0f}: a state {state['saved']:.0f} times smaller "
        f"({on_the_grid(state['low'], state['high'], 0)})"
    )
    yield f"{100 * (saving('Linear', 'tokens_per_second')['saved'] - 1):.0f} % more tokens a second"
    yield total_flops(saving("Linear", "flops_total"))
    yield f"{100 * (1 / saving('Linear', 'answer_seconds')['saved'] - 1):.0f} % more time an answer"
    yield f"{1 / saving('Linear', 'training_flops')['saved']:.0f} times the training FLOPs to 90 %"


def linear_at_thirteen_operators():
    state = saving("Linear", "state_bytes", 13)
    more_tokens = 100 * (saving("Linear", "tokens_per_second", 13)["saved"] - 1)
    total = total_flops(saving("Linear", "flops_total", 13))
    yield (
        f"linear attention at {state['dim']:.0f} (82.1 % at 32; 48 has not run): a state "
        f"{state['saved']:.0f} times smaller ({on_the_grid(state['low'], state['high'], 0)}), "
        f"{more_tokens:.0f} % more tokens a second, {total}"
    )


def sparse_at_ten_operators():
    state = saving("Sparse", "state_bytes")
    yield (f"Sparse attention at {state['dim']:.0f} saves state alone, {state['saved']:.1f} times")


def told():
    yield from (("docs/findings.md", phrase) for phrase in claim_of_table_2())
    for part in (
        linear_at_six_operators,
        linear_at_ten_operators,
        linear_at_thirteen_operators,
        sparse_at_ten_operators,
    ):
        yield from (("docs/findings/overnight.md", phrase) for phrase in part())


@pytest.mark.parametrize(("path", "phrase"), list(told()))
def test_a_ratio_at_the_papers_sizes_is_the_tables(path, phrase):
    assert phrase in " ".join((ROOT / path).read_text().split())


def test_sparse_attention_at_ten_operators_saves_state_alone():
    rows = SAVINGS[(SAVINGS["size"] == 10) & (SAVINGS["model"] == "Sparse")]
    assert list(rows.loc[rows["saved"] > 1, "currency"]) == ["state_bytes"]
