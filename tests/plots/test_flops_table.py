"""The FLOPs table: numbers recomputed by hand, and sentences that follow from them."""

import io
import shutil
import subprocess

import made_up_tables as tables
import pandas as pd
import pytest

from plots import flops_table
from plots.cells import gather


def grid(table, plan=None):
    return gather(table, tables.plan_of(table) if plan is None else plan)


def row(model, dim, accuracy, linear, total, **fields):
    return tables.row(
        model=model, dim=dim, answer_accuracy=accuracy, flops_linear_layers=linear * 1e9,
        flops_total=total * 1e9, **fields,
    )  # fmt: skip


@pytest.fixture
def crossing():
    """Standard is cheapest by linear layers, sparse by total; linear reaches only 89.9 %."""
    return pd.DataFrame([
        row("standard", 32, 0.5, 0.1, 0.5), row("standard", 64, 0.9, 0.4, 2.0),
        row("linear", 64, 0.3, 0.4, 0.5), row("linear", 128, 0.899, 1.6, 1.9),
        row("sparse", 64, 0.7, 0.45, 0.6), row("sparse", 128, 0.95, 1.6, 1.8),
    ])  # fmt: skip


def test_least_flops_and_dimension_under_both_conventions(crossing):
    frame = flops_table.rows(grid(crossing)).set_index("model")
    standard = frame.loc["Standard"]
    assert (standard["dim"], standard["gflops_linear_layers"], standard["gflops_total"]) == (
        64, 0.4, 2.0
    )  # fmt: skip
    assert (standard["paper_gflops"], standard["paper_dim"], standard["paper_length"]) == (
        0.027, 64, 87
    )  # fmt: skip
    linear = frame.loc["Linear"]
    assert linear["state"] == "not reached" and pd.isna(linear["dim"])
    assert pd.isna(linear["gflops_total"])
    assert (linear["best_dim"], linear["best_accuracy"]) == (128, 0.899)
    assert list(frame.index) == ["Standard", "Linear", "Sparse"]


def test_the_sentence_names_the_cheapest_and_what_changes(crossing):
    said = flops_table.sentences(grid(crossing))
    assert said[0] == (
        "Arithmetic, n = 6: cheapest by linear layers Standard (0.400 GFLOPs, D = 64), "
        "by total Sparse (1.80 GFLOPs, D = 128) (Linear not reached)."
    )
    assert said[-1] == (
        "Counting the mixing changes the order of the models that reach 90 % at 1 of the 1 size "
        "where two or more do: Arithmetic, n = 6 (Standard < Sparse becomes Sparse < Standard)."
    )


def test_the_sentence_says_when_nothing_changes(crossing):
    crossing["flops_total"] = crossing["flops_linear_layers"] * 1.5
    assert "changes neither" in flops_table.sentences(grid(crossing))[-1]


def test_a_tie_is_told_as_a_tie(crossing):
    crossing.loc[crossing["model"] == "sparse", "flops_linear_layers"] = 0.4e9
    said = flops_table.sentences(grid(crossing))
    assert "linear layers Standard and Sparse (0.400" in said[0]
    assert "Standard = Sparse becomes Sparse < Standard" in said[-1]


def test_one_model_alone_allows_no_comparison(crossing):
    table = crossing[crossing["model"] == "standard"]
    assert "nothing can be said" in flops_table.sentences(grid(table))[-1]


def test_a_dimension_counts_when_the_mean_over_seeds_reaches_90_percent():
    table = pd.DataFrame([
        row("standard", 32, 0.99, 1, 1, seed=0), row("standard", 32, 0.80, 1, 1, seed=1),
        row("standard", 64, 0.85, 4, 4, seed=0), row("standard", 64, 0.96, 4, 4, seed=1),
    ])  # fmt: skip
    (line,) = flops_table.rows(grid(table)).itertuples()
    assert (line.dim, line.seeds, line.gflops_total) == (64, 2, 4.0)


def test_missing_cells_make_bounds_and_words(crossing):
    plan = tables.plan_of(crossing)
    lacking = crossing.drop(index=[0, 3, 4, 5])
    frame = flops_table.rows(grid(lacking, plan)).set_index("model")
    assert frame.loc["Standard", "smaller_unmeasured"] == "32"
    assert frame.loc["Linear", "state"] == "incomplete"
    assert frame.loc["Sparse", "state"] == "not run"
    table = flops_table.printed_table(
        frame.reset_index()[flops_table.rows(grid(crossing)).columns], ["x"],
        grid(lacking, plan), tables.experiment(),
    )  # fmt: skip
    text = table.markdown()
    assert "| ≤ 64 | ≤ 0.400 | ≤ 2.00 |" in text
    assert "not reached (best 30.0 % at D = 64; no result for D = 128)" in text
    assert "| not run |" in text


def test_paper_columns_only_where_the_paper_speaks():
    table = tables.product(["lis"], ["standard"], [40], [64, 128])
    g = grid(table)
    frame = flops_table.rows(g)
    assert frame["paper_gflops"].isna().all()
    text = flops_table.printed_table(frame, ["x"], g, tables.experiment()).markdown()
    assert "paper |" not in text and "paper D" not in text
    five = tables.product(["arithmetic"], ["standard"], [6], [64], layers=5)
    assert flops_table.rows(grid(five))["paper_gflops"].isna().all()


def test_files_hold_what_was_computed(tmp_path):
    table = tables.figure_1()
    experiment = tables.experiment(budget="9 steps")
    paths = flops_table.draw(table, tables.plan_of(table), experiment, tmp_path)
    assert [path.suffix for path in paths] == [".csv", ".md", ".tex"]
    back = pd.read_csv(io.StringIO(paths[0].read_text()))
    assert len(back) == 3 * 3 * 4
    least = table[(table["task"] == "lis") & (table["model"] == "linear") & (table["size"] == 110)]
    least = least[least["answer_accuracy"] >= 0.9].nsmallest(1, "dim").iloc[0]
    line = back[(back["task"] == "LIS") & (back["model"] == "Linear") & (back["size"] == 110)].iloc[
        0
    ]
    assert line["dim"] == least["dim"]
    assert line["gflops_total"] == pytest.approx(least["flops_total"] / 1e9)
    assert "Budget: 9 steps." in paths[1].read_text()
    again = flops_table.draw(table, tables.plan_of(table), experiment, tmp_path / "again")
    assert [p.read_bytes() for p in paths] == [p.read_bytes() for p in again]


def example_tex(tmp_path):
    table = tables.figure_1()
    table.loc[table["task"] == "ed", "task"] = "ed_local & 50%"
    table = table[~((table["model"] == "linear") & (table["dim"] > 128))]
    plan = tables.plan_of(table)
    lacking = table[~((table["task"] == "lis") & (table["model"] == "sparse"))]
    return flops_table.draw(lacking, plan, tables.experiment("odd_name"), tmp_path)[2]


def test_latex_is_balanced_and_each_row_fills_the_columns(tmp_path):
    lines = example_tex(tmp_path).read_text().splitlines()
    opening = next(line for line in lines if line.startswith(r"\begin{tabular}"))
    width = len(opening.split("}{")[1].rstrip("}"))
    body = lines[lines.index(r"\toprule") + 1 : lines.index(r"\bottomrule")]
    rows = [line for line in body if line != r"\midrule"]
    assert len(rows) == 1 + 36
    for line in rows:
        assert line.endswith(r" \\")
        cells = line.replace(r"\&", "").count("&") + 1
        assert cells + 2 * line.count(r"\multicolumn{3}") == width
    text = "\n".join(lines)
    assert text.count(r"\begin{") == text.count(r"\end{")
    assert r"ed\_local \& 50\%" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(tmp_path):
    source = example_tex(tmp_path).read_text()
    document = (
        "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n"
        + source
        + "\\end{document}\n"
    )
    (tmp_path / "main.tex").write_text(document)
    done = subprocess.run(
        ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "main.tex"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
