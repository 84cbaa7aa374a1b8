"""At how many sizes a model saves, counted by hand."""

import made_up_tables as tables
import numpy as np
import pandas as pd
import pytest

from plots import savings_summary

NAN = np.nan


def ratio(saved, low, high, currency="flops_total", model="Linear"):
    return {"model": model, "currency": currency, "saved": saved, "low": low, "high": high}


@pytest.fixture
def summary():
    return savings_summary.rows(
        pd.DataFrame([
            ratio(2.0, 1.5, 3.0),
            ratio(2.0, 0.9, 3.0),
            ratio(4.0, NAN, 5.0),
            ratio(0.5, 0.4, 0.9),
            ratio(0.5, 0.4, NAN),
            ratio(0.7, NAN, NAN, "training_flops"),
            ratio(1.2, NAN, NAN, "training_flops"),
            ratio(1.0, NAN, NAN, "training_flops"),
            ratio(3.0, 2.0, 4.0, model="Sparse"),
        ])
    )  # fmt: skip


def counts(summary, model, currency):
    row = summary[(summary["model"] == model) & (summary["currency"] == currency)].iloc[0]
    return row[["sizes", "cheaper", "open", "dearer"]].tolist()


def test_what_the_bar_leaves_open_is_neither_cheaper_nor_dearer(summary):
    assert counts(summary, "Linear", "flops_total") == [5, 1, 3, 1]
    assert counts(summary, "Sparse", "flops_total") == [1, 1, 0, 0]


def test_training_has_no_bar_and_counts_by_its_point(summary):
    assert counts(summary, "Linear", "training_flops") == [3, 1, 1, 1]


def test_the_range_is_that_of_the_points(summary):
    row = summary.iloc[0]
    assert row[["least_saved", "median_saved", "most_saved"]].tolist() == [0.5, 2.0, 4.0]


def test_the_table_names_currencies_in_words(summary):
    text = savings_summary.printed_table(summary, tables.experiment()).markdown()
    assert "| Linear | total FLOPs | 5 | 1 | 3 | 1 | 0.500 | 2.00 | 4.00 |" in text
    assert "open: it holds 1" in text


def test_no_pair_no_row():
    assert savings_summary.rows(pd.DataFrame(columns=["model", "currency", "saved"])).empty
