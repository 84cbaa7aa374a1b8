"""How many times less than standard attention a model costs, worked out by hand."""

import json

import made_up_tables as tables
import numpy as np
import pandas as pd
import pytest
from matplotlib.lines import Line2D

from plots import cost_rows, looks, savings, savings_rows
from plots.budgets import of_grid
from plots.cells import gather

DONE = {"steps": 1000, "steps_to_90": 500, "flops_training": 4e12}
STANDARD = {"flops_linear_layers": 1e9, "flops_total": 6e9, "state_bytes": 8192}
LINEAR = {"flops_linear_layers": 4e9, "flops_total": 5e9, "state_bytes": 2048}
SECONDS, TOKENS = "answer_seconds", "tokens_per_second"


def run(model, dim, accuracy=0.95, **fields):
    return tables.row(model=model, dim=dim, answer_accuracy=accuracy, **(DONE | fields))


@pytest.fixture
def runs():
    """Both models fail at D = 16; standard attention reaches 90 % at 32, linear at 64."""
    return [
        run("standard", 16, 0.2), run("linear", 16, 0.2), run("linear", 32, 0.2),
        run("standard", 32, **STANDARD), run("linear", 64, steps_to_90=1000, **LINEAR),
    ]  # fmt: skip


@pytest.fixture
def answers(runs):
    turns = {"standard": ([0.2, 0.3], [100, 90]), "linear": ([0.1, 0.6], [150, 180])}
    models = [
        {"model": r["model"], "cell": r["cell"], "dim": r["dim"], "weights": "trained",
         SECONDS: turns[r["model"]][0], TOKENS: turns[r["model"]][1],
         "training_step_seconds": [0.1, 0.1]}
        for r in runs[3:]
    ]  # fmt: skip
    return [{"task": "Arithmetic", "size": 6, "batch": 64, "repeats": 2, "device": "made up",
             "commit": "0123456789ab", "models": models}]  # fmt: skip


def ratios(runs, answers=(), folder=None):
    table = pd.DataFrame(runs)
    grid = gather(table, tables.plan_of(table))
    budgets = of_grid(grid, folder) if folder else None
    return savings_rows.rows(cost_rows.rows(grid, budgets, answers), grid)


def test_each_currency_is_standard_attentions_cost_over_the_models(runs, answers):
    found = ratios(runs, answers).set_index("currency")
    assert found["saved"].to_dict() == pytest.approx({
        "flops_linear_layers": 1 / 4, "flops_total": 6 / 5, "state_bytes": 4,
        "answer_seconds": 0.25 / 0.35, "tokens_per_second": 165 / 95,
        "training_flops": 1 / 2, "training_seconds": 50 / 100,
    })  # fmt: skip
    assert set(found["model"]) == {"Linear"}
    assert set(zip(found["dim"], found["standard_dim"], strict=True)) == {(64, 32)}


def test_the_turns_span_the_bar(runs, answers):
    found = ratios(runs, answers).set_index("currency")
    assert found.loc[SECONDS, ["low", "high"]].tolist() == pytest.approx([0.3 / 0.6, 0.2 / 0.1])
    assert found.loc[TOKENS, ["low", "high"]].tolist() == pytest.approx([150 / 100, 180 / 90])


def test_the_bar_of_what_is_counted_spans_every_d_above_those_that_fail(runs):
    """Standard attention needs more than 16 and at most 32, linear more than 32, at most 64."""
    failing = [run("standard", 16, 0.2, flops_total=3e9), run("linear", 16, 0.2, flops_total=1e9),
               run("linear", 32, 0.2, flops_total=2e9)]  # fmt: skip
    found = ratios([*failing, *runs[3:]]).set_index("currency")
    bar = found.loc["flops_total", ["low", "saved", "high"]].tolist()
    assert bar == pytest.approx([3 / 5, 6 / 5, 6 / 2])
    assert found.loc["training_flops", ["low", "high"]].isna().all()


def test_where_no_d_fails_nothing_bounds_the_quotient_and_the_bar_ends_at_the_point(runs):
    one_side = [run("linear", 32, 0.2, flops_total=2e9), *runs[3:]]
    found = ratios(one_side).set_index("currency").loc["flops_total"]
    assert np.isnan(found["low"]) and found["high"] == pytest.approx(6 / 2)
    panels = {axes.get_gid(): axes for axes in drawn(one_side).axes}
    lines = panels[f"panel/Arithmetic/{savings.TITLES['flops_total']}"].lines
    (bar,) = [line for line in lines if line.get_gid() == "bar/Linear/6"]
    assert list(bar.get_ydata()) == pytest.approx([6 / 5, 6 / 2])


def test_what_was_not_timed_has_no_row(runs):
    assert not {SECONDS, TOKENS, "training_seconds"} & set(ratios(runs)["currency"])


def test_a_model_short_of_90_percent_has_no_row(runs):
    assert ratios([*runs[:4], run("linear", 64, 0.89, **LINEAR)]).empty
    assert ratios([run("standard", 32, 0.89, **STANDARD), runs[4]]).empty


@pytest.mark.parametrize(("left_out", "bound"), [([], "unknown"), ([0], "yes"), ([1, 2], "yes")])
def test_the_smallest_d_of_a_grid_is_a_bound(runs, left_out, bound):
    found = ratios([r for i, r in enumerate(runs) if i not in left_out])
    assert set(found["bound"]) == {bound}


def test_a_d_of_the_grid_not_run_below_is_a_bound(runs):
    found = ratios([*runs[:2], tables.unmeasured("unfinished", model="linear", dim=32), *runs[3:]])
    assert set(found["bound"]) == {"yes"}


@pytest.mark.parametrize(("at_64", "bound"), [([0.1, 0.1, 0.95], "yes"), ([0.95] * 3, "no")])
def test_a_least_d_that_the_budget_limits_is_a_bound(runs, tmp_path, at_64, bound):
    folder = tmp_path / "curves"
    folder.mkdir()
    for item in runs:
        shares = at_64 if item["dim"] == 64 else [item["answer_accuracy"]] * 3
        curve = {"step": [250, 500, 1000], "seconds": [1, 2, 3],
                 "validation_chain_exact_match": shares}  # fmt: skip
        pd.DataFrame(curve).to_csv(folder / f"{item['cell']}.csv", index=False)
    assert set(ratios(runs, folder=tmp_path)["bound"]) == {bound}


def test_the_smallest_d_is_that_of_the_size(runs):
    """Size 10 has no D = 16, so that standard attention's 32 is the smallest tried there."""
    larger = [run("standard", 32, size=10, **STANDARD), run("linear", 32, 0.2, size=10),
              run("linear", 64, size=10, **LINEAR)]  # fmt: skip
    found = ratios([*runs, *larger]).groupby("size")["bound"].unique()
    assert found.map(list).to_dict() == {6: ["unknown"], 10: ["yes"]}


@pytest.mark.parametrize("fields", [{"state_bytes": 0}, {"steps_to_90": 0}])
def test_a_cost_of_nothing_gives_no_quotient(runs, fields):
    found = ratios([*runs[:4], run("linear", 64, **(LINEAR | fields))])
    gone = {"state_bytes": "state_bytes", "steps_to_90": "training_flops"}[next(iter(fields))]
    assert gone not in set(found["currency"]) and "flops_total" in set(found["currency"])


def test_models_are_held_against_those_of_as_many_layers():
    deep = {"layers": 5, "flops_linear_layers": 2e9, "flops_total": 2e9, "state_bytes": 4096}
    rows = [run("standard", 16, 0.2), run("linear", 16, 0.2), run("standard", 32, **STANDARD),
            run("linear", 64, **LINEAR), run("standard", 16, 0.2, layers=5),
            run("linear", 16, 0.2, layers=5), run("standard", 32, **deep),
            run("linear", 32, **(deep | {"flops_total": 1e9}))]  # fmt: skip
    total = ratios(rows)
    total = total[total["currency"] == "flops_total"].set_index("model")
    assert total["saved"].to_dict() == {"Linear, 3 layers": 6 / 5, "Linear, 5 layers": 2.0}
    assert list(total["standard"]) == ["Standard, 3 layers", "Standard, 5 layers"]


def drawn(runs, answers=(), **fields):
    table = pd.DataFrame([row | fields for row in runs])
    grid = gather(table, tables.plan_of(table))
    return savings.figure(ratios([row | fields for row in runs], answers), grid, "footer")


def test_draw_takes_the_timings_beside_the_table(runs, answers, tmp_path):
    table = pd.DataFrame(runs)
    arguments = table, tables.plan_of(table), tables.experiment(), tmp_path / "figures"
    paths = savings.draw(*arguments)
    assert [path.name for path in paths[:3]] == ["savings.pdf", "savings.png", "savings.csv"]
    assert [path.stem for path in paths[3:]] == ["savings_summary"] * 3
    assert "answer_seconds" not in paths[2].read_text()
    (tmp_path / "answers.json").write_text(json.dumps({"rows": answers}))
    savings.draw(*arguments)
    assert "answer_seconds" in paths[2].read_text()


def test_without_a_pair_there_is_nothing_to_count(runs, tmp_path):
    table = pd.DataFrame(runs[:3])
    paths = savings.draw(table, tables.plan_of(table), tables.experiment(), tmp_path / "figures")
    assert [path.name for path in paths] == ["savings.pdf", "savings.png", "savings.csv"]


def footer_of(runs, monkeypatch, folder):
    """What `draw` has the figure say under its panels."""
    told = []
    figure = savings.figure

    def noting(ratios, grid, text):
        told.append(text)
        return figure(ratios, grid, text)

    monkeypatch.setattr(savings, "figure", noting)
    table = pd.DataFrame(runs)
    savings.draw(table, tables.plan_of(table), tables.experiment(), folder / "figures")
    return told[0]


def test_the_footer_says_what_was_timed(runs, answers, monkeypatch, tmp_path):
    assert "Nothing was timed yet" in footer_of(runs, monkeypatch, tmp_path)
    (tmp_path / "answers.json").write_text(json.dumps({"rows": answers}))
    told = footer_of(runs, monkeypatch, tmp_path)
    assert "medians of 2 turns" in told and "commit 0123456789ab" in told
    assert savings.SEVERAL not in told


def test_of_several_standards_the_cheapest_counts_and_is_named(runs, monkeypatch, tmp_path):
    dear = STANDARD | {"flops_linear_layers": 2e9, "flops_total": 9e9}
    both = [row | {"model.position": "sinusoidal"} for row in runs]
    both.append(run("standard", 32, **dear, cell="rotary") | {"model.position": "rope"})
    found = ratios(both)
    total = found[found["currency"] == "flops_total"]
    assert total["saved"].tolist() == pytest.approx([6 / 5])
    assert "sinusoidal" in total["standard"].iloc[0]
    assert savings.SEVERAL in footer_of(both, monkeypatch, tmp_path)


def test_depths_are_held_against_their_own(runs, monkeypatch, tmp_path):
    deep = [row | {"layers": 5, "cell": f"{row['cell']}-deep"} for row in runs]
    told = "Each model is held against standard attention of the same layers."
    assert told in footer_of([*runs, *deep], monkeypatch, tmp_path)
    assert "held against" not in footer_of(runs, monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("left_out", "gid", "words"),
    [(1, "limited/Linear/6", "from above only"), (0, "perhaps/Linear/6", "not known")],
)
def test_a_bound_is_hollow_and_a_perhaps_half_filled(runs, left_out, gid, words):
    figure = drawn(runs[left_out:])
    for axes in figure.axes:
        kinds = ("limited/", "perhaps/")
        marks = [line for line in axes.lines if str(line.get_gid()).startswith(kinds)]
        assert [mark.get_gid() for mark in marks] == [gid]
        whole = marks[0].get_fillstyle() == "full"
        assert whole == (marks[0].get_markerfacecolor() == "white") == (left_out == 1)
    labels = [text.get_text() for text in figure.legends[0].texts]
    assert labels[0] == "Linear" and words in labels[1] and len(labels) == 2


def test_marks_of_variants_differ_and_have_a_face_to_paint_white():
    assert len(set(looks.MARKERS)) == len(looks.MARKERS)
    assert {*looks.MARKERS, "s"} <= set(Line2D.filled_markers)


def test_every_axis_has_labels(runs):
    figure = drawn(runs)
    figure.canvas.draw()
    first = figure.axes[0]
    shown = [label.get_text() for label in first.get_xticklabels() if label.get_text()]
    assert shown == ["85"]
    low, high = first.get_ylim()
    ticks = [tick for tick in first.get_yticks() if low <= tick <= high]
    assert len(ticks) >= 3


@pytest.mark.parametrize(
    ("lengths", "width", "ticks"),
    [([11, 83], 2.0, [16, 32, 64]), ([11, 145], 0.7, [16, 64]), ([85], 0.7, [85]), ([], 0.7, [])],
)
def test_lengths_have_ticks_at_powers_that_do_not_touch(lengths, width, ticks):
    assert savings._ticks(pd.Series(lengths, dtype=float), width) == ticks


def test_a_length_that_is_not_known_is_not_drawn(runs):
    texts = [text.get_text() for axes in drawn(runs, max_len=None).axes for text in axes.texts]
    assert texts == ["no pair"]


def test_what_was_measured_for_another_task_alone_is_said(runs, answers):
    other = [run(r["model"], r["dim"], r["answer_accuracy"], task="lis",
                 **(STANDARD if r["model"] == "standard" else LINEAR)) for r in runs]  # fmt: skip
    figure = drawn([*runs, *other], answers)
    told = {axes.get_gid() for axes in figure.axes for text in axes.texts}
    timed = [SECONDS, TOKENS, "training_seconds"]
    assert told == {f"panel/LIS/{savings.TITLES[name]}" for name in timed}


def test_panels_hold_the_quotients(runs, answers):
    figure = drawn(runs, answers)
    panels = {axes.get_gid(): axes for axes in figure.axes}
    assert len(panels) == len(savings.TITLES)
    panel = panels[f"panel/Arithmetic/{savings.TITLES[SECONDS]}"]
    lines = {line.get_gid(): line for line in panel.lines}
    assert lines["saved/Linear"].get_ydata() == pytest.approx([0.25 / 0.35])
    assert list(lines["bar/Linear/6"].get_ydata()) == pytest.approx([0.5, 2.0])
    assert panel.get_ylim()[0] < 1 / 4 and panel.get_ylim()[1] > 4


def test_without_a_pair_the_panel_says_so(runs):
    texts = [text.get_text() for axes in drawn(runs[:3]).axes for text in axes.texts]
    assert texts == ["no pair"]
