"""The least D at parts of the budget, worked out by hand from made-up curves."""

import made_up_tables as tables
import pandas as pd
import pytest

from plots import flops_table, heatmap, least_dim_vs_budget, required_dimension
from plots.budgets import of_grid, sentences
from plots.cells import gather

# Validation chains at steps 250, 500 and 1000 of 1,000; the answers of the last are the table's.
CURVES = {
    # D = 64 reaches 90 % at half, 32 at the end alone: limited by the budget.
    "standard": {16: (0.1, 0.2, 0.3), 32: (0.2, 0.6, 0.95), 64: (0.5, 0.92, 0.99)},
    # 32 stands at half and at the end, at a quarter only 64.
    "linear": {16: (0.1, 0.2, 0.3), 32: (0.3, 0.91, 0.95), 64: (0.9, 0.97, 0.99)},
    # Nothing reaches 90 %: there is no frontier to be limited.
    "sparse": {16: (0.1, 0.1, 0.1), 32: (0.2, 0.3, 0.4), 64: (0.3, 0.4, 0.5)},
}
STEPS = (250, 500, 1000)


def write_curve(folder, cell, shares, steps=STEPS):
    (folder / "curves").mkdir(parents=True, exist_ok=True)
    curve = {"step": steps, "seconds": steps, "validation_chain_exact_match": shares}
    pd.DataFrame(curve).to_csv(folder / "curves" / f"{cell}.csv", index=False)


@pytest.fixture
def table(tmp_path):
    rows = [
        tables.row(model=model, dim=dim, answer_accuracy=shares[-1], steps=1000)
        for model, curves in CURVES.items()
        for dim, shares in curves.items()
    ]
    for row in rows:
        write_curve(tmp_path, row["cell"], CURVES[row["model"]][row["dim"]])
    return pd.DataFrame(rows)


def limits(table, folder):
    found = of_grid(gather(table, tables.plan_of(table)), folder)
    return pd.DataFrame(
        [{"model": row, **item.columns()} for (_, row, _), item in found.items()]
    ).set_index("model")


def test_the_least_d_at_each_part_of_the_budget_is_that_of_the_curves(table, tmp_path):
    found = limits(table, tmp_path)
    parts = found[["dim_quarter_budget", "dim_half_budget", "dim_all_budget"]]
    assert parts.loc["Standard"].tolist() == ["> 64", "64", "32"]
    assert parts.loc["Linear"].tolist() == ["64", "32", "32"]
    assert parts.loc["Sparse"].tolist() == ["> 64", "> 64", "> 64"]
    assert found["limited_by_budget"].to_dict() == {"Standard": "yes", "Linear": "no", "Sparse": ""}


@pytest.mark.parametrize(
    ("below", "limited"), [((0.1, 0.2, 0.29), "no"), ((0.1, 0.2, 0.31), "unknown")]
)
def test_a_smaller_d_that_still_rises_leaves_it_open(below, limited, table, tmp_path):
    """Linear attention's 32 stands at half of the steps; what of 16?"""
    (cell,) = table.loc[(table["model"] == "linear") & (table["dim"] == 16), "cell"]
    write_curve(tmp_path, cell, below)
    assert limits(table, tmp_path).loc["Linear", "limited_by_budget"] == limited


def test_the_least_d_by_answers_is_judged_by_its_own_curve(table, tmp_path):
    """Answers reach 90 % at D = 16, whose chains do not: nothing is known of its budget."""
    rows = (table["model"] == "linear") & (table["dim"] == 16)
    table.loc[rows, "answer_accuracy"] = 0.93
    assert limits(table, tmp_path).loc["Linear", "limited_by_budget"] == "unknown"


def test_a_missing_curve_is_unknown_and_not_no(table, tmp_path):
    cell = table.loc[(table["model"] == "linear") & (table["dim"] == 32), "cell"].iloc[0]
    (tmp_path / "curves" / f"{cell}.csv").unlink()
    found = limits(table, tmp_path).loc["Linear"]
    assert found["limited_by_budget"] == "unknown" and found["dim_all_budget"] == "≤ 64"
    grid = gather(table, tables.plan_of(table))
    told = " ".join(sentences(of_grid(grid, tmp_path)))
    assert "unknown for 1 of 2 least D" in told and "Arithmetic: Linear n = 6" in told
    nowhere = of_grid(grid, None)
    assert {item.limited for item in nowhere.values()} == {"unknown", ""}


def test_a_run_that_stopped_early_keeps_its_last_value(table, tmp_path):
    """It stopped, solved, at step 250 of a budget of 1,000 that only its configuration tells."""
    row = tables.row(model="linear", dim=16, answer_accuracy=0.99, steps=250, stopped="solved")
    alone = pd.DataFrame([row])
    write_curve(tmp_path, row["cell"], (0.4, 0.995), (125, 250))
    assert limits(alone, tmp_path)["limited_by_budget"].tolist() == ["unknown"]


def test_the_budget_of_an_early_stop_is_its_recipes(tmp_path):
    row = tables.row(model="linear", dim=16, answer_accuracy=0.99, steps=250, stopped="solved")
    write_curve(tmp_path, row["cell"], (0.4, 0.995), (125, 250))
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / f"{row['cell']}.yaml").write_text("recipe: {steps: 1000}\n")
    found = limits(pd.DataFrame([row]), tmp_path).iloc[0]
    assert found["limited_by_budget"] == "no"
    assert found["dim_quarter_budget"] == found["dim_all_budget"] == "16"


def test_the_mean_over_seeds_decides_at_every_part(tmp_path):
    rows = [tables.row(dim=16, seed=s, answer_accuracy=0.95, steps=1000) for s in (0, 1)]
    for row, half in zip(rows, (0.99, 0.80), strict=True):
        write_curve(tmp_path, row["cell"], (0.1, half, 0.95))
    assert limits(pd.DataFrame(rows), tmp_path)["limited_by_budget"].tolist() == ["yes"]


def gids(axes, kind):
    return {line.get_gid(): line for line in axes.lines if str(line.get_gid()).startswith(kind)}


def test_the_figure_has_a_line_a_model_and_a_hollow_end_where_limited(table, tmp_path):
    plan = tables.plan_of(table)
    figures = least_dim_vs_budget.figures(table, plan, tables.experiment(), tmp_path)
    (figure,) = figures.values()
    (axes,) = figure.axes
    lines = gids(axes, "least")
    assert list(lines["least/Standard"].get_ydata()) == [64, 32]
    assert list(lines["least/Linear"].get_ydata()) == [64, 32, 32]
    larger = {"Standard/quarter", "Sparse/quarter", "Sparse/half", "Sparse/all"}
    assert set(gids(axes, "larger")) == {
        f"larger/{place}{mark}" for place in larger for mark in ("", "/mark")
    }
    assert list(gids(axes, "limited")) == ["limited/Standard"]
    assert list(gids(axes, "interval")["interval/Linear/all"].get_ydata()) == [16, 32]
    said = " ".join(text.get_text() for text in figure.texts)
    assert "1,000 steps" in said and "standing in for answer accuracy" in said


def test_the_legend_has_the_marks_of_the_figure_alone(table, tmp_path):
    def legend(model):
        rows = table[table["model"].isin(model)]
        plan = tables.plan_of(rows)
        (figure,) = least_dim_vs_budget.figures(rows, plan, tables.experiment(), tmp_path).values()
        return [text.get_text() for text in figure.legends[0].texts]

    larger = "not reached: larger than the mark"
    every = [larger, "limited by the budget"]
    assert legend(["standard", "linear"]) == ["Standard", "Linear", *every]
    assert legend(["linear"]) == ["Linear"]
    assert legend(["sparse"]) == ["Sparse", larger]


def test_limited_frontiers_are_marked_in_every_figure_and_table(table, tmp_path):
    plan, experiment = tables.plan_of(table), tables.experiment()
    axes = heatmap.figure(table, plan, experiment, tmp_path).axes
    panels = {item.get_gid(): item for item in axes}
    assert gids(panels["panel/Standard/Arithmetic"], "frontier/limited")
    assert not gids(panels["panel/Linear/Arithmetic"], "frontier/limited")
    picture = required_dimension.figure(table, plan, experiment, tmp_path)
    assert list(gids(picture.axes[0], "limited")) == ["limited/Standard/6"]
    for path in flops_table.draw(table, plan, experiment, tmp_path / "figures"):
        text = path.read_text()
        marks = {".csv": ",yes,> 64,64,32,", ".md": "| 32† |", ".tex": r"32\dag{}"}
        assert marks[path.suffix] in text
        assert {".tex": r"\label{tab:flops:example}"}.get(path.suffix, "") in text
