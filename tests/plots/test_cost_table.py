"""What 90 % costs: winners, savings and what is missing, worked out by hand."""

import json

import made_up_tables as tables
import numpy as np
import pandas as pd
import pytest

from common import UserError
from plots import cost_rows, cost_table, savings_text
from plots.answers import read_answers
from plots.cells import gather
from plots.redraw import figure_module

DONE = {"steps": 1000, "steps_to_90": 500, "flops_training": 4e12, "seconds_to_90": 60.0}


def run(model, dim, accuracy=0.95, **fields):
    return tables.row(model=model, dim=dim, answer_accuracy=accuracy, **(DONE | fields))


def standard(**fields):
    return run("standard", 32, flops_linear_layers=1e9, flops_total=6e9, state_bytes=8192, **fields)


def linear(**fields):
    return run("linear", 64, flops_linear_layers=4e9, flops_total=5e9, state_bytes=2048, **fields)


def timed(row, seconds, tokens, step=0.1):
    return {
        "model": row["model"], "cell": row["cell"], "dim": row["dim"], "weights": "untrained",
        "answer_seconds": seconds, "tokens_per_second": tokens,
        "training_step_seconds": [step] * len(seconds),
    }  # fmt: skip


def answers_of(*models, **fields):
    row = {"task": "Arithmetic", "size": 6, "batch": 64, "repeats": 3, "device": "cpu: made up",
           "commit": "0123456789ab", "models": list(models)}  # fmt: skip
    return [row | fields]


def frame_of(*rows, answers=()):
    table = pd.DataFrame(rows)
    grid = gather(table, tables.plan_of(table))
    return cost_rows.rows(grid, None, answers).set_index("model", drop=False)


def best(frame, name):
    return dict(zip(frame["model"], frame[f"best_{name}"], strict=True))


@pytest.fixture
def answers():
    return answers_of(
        timed(standard(), [0.2, 0.3, 0.1], [100, 90, 110], step=0.2),
        timed(linear(), [0.1, 0.2, 0.05], [120, 80, 130], step=0.1),
    )


def test_every_currency_has_its_own_winner(answers):
    frame = frame_of(standard(), linear(steps_to_90=750), answers=answers)
    assert best(frame, "flops_linear_layers") == {"Standard": "yes", "Linear": "no"}
    assert best(frame, "flops_total") == {"Standard": "no", "Linear": "yes"}
    assert best(frame, "state_bytes") == {"Standard": "no", "Linear": "yes"}
    assert best(frame, "answer_seconds") == {"Standard": "no", "Linear": "yes"}
    assert frame["answer_seconds"].tolist() == [0.2, 0.1]
    # 4e12 FLOPs in 1,000 steps, of which 500 and 750 were needed.
    assert frame["training_flops"].tolist() == [2e12, 3e12]
    assert frame["training_seconds"].tolist() == [500 * 0.2, 750 * 0.1]
    assert best(frame, "training_flops") == {"Standard": "yes", "Linear": "no"}
    assert best(frame, "training_seconds") == {"Standard": "no", "Linear": "yes"}
    assert best(frame, "seconds_as_run") == {"Standard": "yes", "Linear": "yes"}


def test_what_does_not_lose_every_turn_is_not_beaten(answers):
    frame = frame_of(standard(), linear(), answers=answers)
    assert frame["tokens_per_second"].tolist() == [100, 120]
    assert best(frame, "tokens_per_second") == {"Standard": "yes", "Linear": "yes"}


def test_the_sentence_names_what_is_saved_and_what_is_lost(answers):
    first, last = savings_text.sentences(frame_of(standard(), linear(), answers=answers))
    assert first == (
        "Arithmetic, n = 6, against Standard (D = 32): Linear (D = 64) saves total FLOPs (÷ 1.20), "
        "bytes of state (÷ 4.00), time an answer (÷ 2.00), training core-seconds (÷ 2.00), is as "
        "dear in time a token in batches, training FLOPs, training seconds as run, is dearer in "
        "linear-layer FLOPs (× 4.00)."
    )
    assert last.startswith("Linear saves linear-layer FLOPs at 0 of 1, total FLOPs at 1 of 1, ")


def test_what_was_not_measured_wins_nothing_and_is_told(answers):
    alone = answers_of(answers[0]["models"][0])
    frame = frame_of(standard(), linear(steps_to_90=np.nan), answers=alone)
    assert best(frame, "answer_seconds") == {"Standard": "", "Linear": ""}
    assert best(frame, "training_flops") == {"Standard": "", "Linear": ""}
    sentence = savings_text.sentences(frame)[0]
    assert "not measured: time an answer, time a token in batches, training FLOPs" in sentence


def test_models_of_two_rows_of_answers_are_not_compared(answers):
    both = answers[0]["models"]
    frame = frame_of(standard(), linear(), answers=answers_of(both[0]) + answers_of(both[1]))
    assert frame["answer_seconds"].notna().sum() == 1
    assert best(frame, "answer_seconds") == {"Standard": "", "Linear": ""}


def test_a_model_that_fails_is_no_competitor():
    frame = frame_of(standard(), run("linear", 64, 0.5, flops_total=1.0))
    assert best(frame, "flops_total") == {"Standard": "", "Linear": ""}
    assert savings_text.sentences(frame) == [
        "Arithmetic, n = 6: Standard reaches 90 %, so no saving can be stated (Linear not "
        "reached).",
        "Linear: at no size do it and Standard both reach 90 %.",
    ]


def test_sizes_not_run_are_rows_without_a_sentence():
    table = pd.DataFrame([standard()])
    plan = tables.plan_of(pd.DataFrame([standard(), standard(size=10)]))
    frame = cost_rows.rows(gather(table, plan))
    assert frame["state"].tolist() == ["reached", "not run"]
    assert [text[:18] for text in savings_text.sentences(frame)] == ["Arithmetic, n = 6:"]


def test_the_upper_median_seed_counts_and_one_that_never_arrives_is_the_dearest():
    def costs(*steps):
        rows = [standard(seed=i, steps_to_90=n, cell=f"s{i}") for i, n in enumerate(steps)]
        return frame_of(*rows)["steps_to_90"].iloc[0]

    assert costs(100, 300) == 300
    assert costs(100, np.nan, 300) == 300
    assert np.isnan(costs(100, np.nan))


def test_seconds_of_two_processors_are_not_compared():
    frame = frame_of(standard(device="cpu: a"), linear(device="cpu: b", seconds_to_90=1.0))
    assert best(frame, "seconds_as_run") == {"Standard": "", "Linear": ""}


def test_seconds_of_trainings_that_moved_are_not_compared():
    moved = "cuda: a; cpu: b"  # what share of the seconds is which device's, nobody knows
    frame = frame_of(
        standard(trained_device=moved), linear(trained_device=moved, seconds_to_90=1.0)
    )
    assert best(frame, "seconds_as_run") == {"Standard": "", "Linear": ""}


def test_models_compete_with_equal_layers_only():
    deep = [{**row, "cell": row["cell"] + "deep"} for row in (standard(layers=5), linear(layers=5))]
    deep[1]["flops_linear_layers"] = 0.5e9
    frame = frame_of(standard(), linear(), *deep)
    assert frame["group"].tolist() == [0, 0, 1, 1]
    assert frame["best_flops_linear_layers"].tolist() == ["yes", "no", "no", "yes"]
    assert savings_text.sentences(frame.reset_index(drop=True))[1].startswith(
        "Arithmetic, n = 6, 5 layers, against Standard, 5 layers (D = 32): Linear, 5 layers"
    )


def test_a_hybrid_of_more_layers_is_compared_all_the_same():
    hybrid = run("hybrid", 16, layers=4, flops_linear_layers=2e9, flops_total=3e9, state_bytes=512)
    frame = frame_of(standard(), linear(), hybrid)
    assert frame["group"].nunique() == 1
    winners = {"Standard": "no", "Linear": "no", "Hybrid, 4 layers": "yes"}
    assert best(frame, "flops_total") == winners
    said = savings_text.sentences(frame)
    assert said[0].startswith("Arithmetic, n = 6, against Standard (D = 32): Linear")
    assert "; Hybrid, 4 layers (D = 16) saves" in said[0]
    assert "total FLOPs at 1 of 1" in said[-1]


def test_files_mark_winners_and_gaps(tmp_path, answers):
    late = linear(steps_to_90=np.nan, seconds_to_90=np.nan)
    table = pd.DataFrame([standard(), late])
    (tmp_path / "answers.json").write_text(json.dumps({"rows": answers}))
    draw = figure_module("cost_table").draw
    paths = draw(table, tables.plan_of(table), tables.experiment(), tmp_path / "figures")
    assert [path.suffix for path in paths] == [".csv", ".md", ".tex"]
    markdown = paths[1].read_text()
    assert "| **1.00** | 6.00 | 8.00 | 200 | **100** | 2.00 | 100 | 60.0 |" in markdown
    assert "| 4.00 | **5.00** | **2.00** | **100** | **120** | — | — | — |" in markdown
    assert "cpu: made up, commit 0123456789ab" in markdown
    latex = paths[2].read_text()
    assert r"\textbf{5.00}" in latex and latex.count(r"\begin{") == latex.count(r"\end{")
    frame = pd.read_csv(paths[0])
    assert frame["state_bytes"].tolist() == [8192, 2048] and "timed" not in frame


def test_without_timing_the_table_says_how_to_get_it(tmp_path):
    table = pd.DataFrame([standard(), linear()])
    paths = cost_table.draw(table, tables.plan_of(table), tables.experiment(), tmp_path / "figures")
    assert "python -m benchmarks answers experiment=example" in paths[1].read_text()


@pytest.mark.parametrize("text", ["{", '{"rows": [{"models": [{"cell": "a"}]}]}', "[]"])
def test_damaged_answers_are_refused(tmp_path, text):
    (tmp_path / "answers.json").write_text(text)
    with pytest.raises(UserError, match=r"answers\.json: damaged"):
        read_answers(tmp_path)
