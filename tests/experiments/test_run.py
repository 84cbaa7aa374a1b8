"""Training, resuming, measuring and recording a single cell."""

import copy
import dataclasses
import multiprocessing
import os
import signal
import subprocess
import time
from unittest.mock import Mock

import pytest
from hydra.core.hydra_config import HydraConfig
from submitit.core.utils import UncompletedJobError

import cotcost
from common import UserError
from experiments.config import MeasureConfig, measured_settings, measured_task
from experiments.grid import cell_of
from experiments.names import cell_name, run_name
from experiments.run import (
    initial_model,
    load_data,
    measured_sequences,
    noting_stop_signals,
    run_and_report,
    run_cell,
)
from experiments.run_folder import Run, commit
from experiments.table import read_cells, read_table
from tasks.task import build_task
from training.checkpoint import load_checkpoint
from training.device import Machine
from training.trainer import Evaluated, TrainingStep


def test_cell_writes_a_run_folder_and_a_row(tiny, tmp_path):
    config = tiny()
    row = run_and_report(config)
    run = Run.of(config)
    assert {path.name for path in run.folder.iterdir()} >= {
        "config.yaml", "checkpoint.pt", "checkpoint.sha256", "training.json", "curve.csv",
        "record.json",
    }  # fmt: skip
    assert row["status"] == "done" and row["run"] == row["cell"] == run.name
    table = read_table(tmp_path / "outputs" / "manual").fillna({"commit": ""})  # without git
    assert len(table) == 1 and table["answer_accuracy"][0] == row["answer_accuracy"]
    assert table["n_test"][0] == 60 and table["steps"][0] == 60
    assert table["device"][0].startswith("cpu") and table["commit"][0] == commit()
    kept = read_cells(tmp_path / "outputs" / "manual")[row["cell"]]
    assert kept["curve"]["step"] == [20, 40, 60]
    assert kept["config"]["task"]["size"] == 4
    assert kept["command"].startswith("python ")
    assert kept["errors"]["by_position"][0][2] == 60


def test_the_seed_decides_the_weights_and_the_order_of_batches(tiny, monkeypatch):
    configs = [tiny(f"seed={seed}", "recipe.steps=20", "recipe.dropout=0.1") for seed in (0, 1)]
    task = build_task(configs[0].task)
    one, other = (initial_model(config, task) for config in configs)
    assert one.dropout.p == 0.1 and not one.embedding.weight.equal(other.embedding.weight)
    first = initial_model(tiny(), task)
    monkeypatch.setattr("experiments.run.initial_model", lambda *_: copy.deepcopy(first))
    one, other = (run_cell(tiny(f"seed={seed}", "recipe.steps=20")) for seed in (0, 1))
    assert one["curve"]["train_loss"] != other["curve"]["train_loss"]


def test_a_second_interrupt_stops_at_once():
    with noting_stop_signals() as stop:
        assert not stop()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_force_repeats_a_measurement_or_all_of_its_run(tiny):
    run_cell(tiny("recipe.steps=20"))
    some = tiny("recipe.steps=20", "measure.count=10", "force=true")
    run = Run.of(some)
    trained = run.training()
    first = run_cell(some)["row"]
    assert first["n_test"] == 10 and run_cell(some)["row"]["n_test"] == 10
    assert run.training() == trained and run.record(run.name)["row"]["n_test"] == 60
    run_cell(tiny("recipe.steps=20", "force=true"))
    assert run.record(first["cell"]) is None
    (run.folder / "checkpoint.pt").unlink()  # a discard interrupted after its first file
    (run.folder / "training.json").unlink()
    assert run_cell(some)["row"]["n_test"] == 10


def test_a_finished_cell_is_not_run_again(tiny, capsys):
    config = tiny("progress=true", "recipe.steps=20")
    first = run_and_report(config)
    assert run_and_report(config) == first
    assert "already done" in capsys.readouterr().out


def test_measuring_at_another_size_reuses_weights_and_gives_its_costs(tiny):
    trained = tiny("task.capacity=6")
    first = run_cell(trained)["row"]
    stamp = Run.of(trained).checkpoint.stat().st_mtime_ns
    other = tiny("task.capacity=6", "measure.task.size=6")
    row = run_cell(other)["row"]
    assert run_name(other) == run_name(trained) != cell_name(other) == row["cell"]
    assert row["size"] == 6 and row["n_test"] == 60
    assert Run.of(other).record_path(row["cell"]).name == f"record-{row['cell']}.json"
    assert Run.of(trained).checkpoint.stat().st_mtime_ns == stamp
    for cost in ("flops_total", "flops_linear_layers", "state_bytes"):
        assert first[cost] < row[cost]
    assert measured_settings({"size": 4, "capacity": 9}, {"size": 3})["capacity"] == 9


def test_a_run_measured_on_a_file_needs_no_test_set(tiny, tmp_path):
    (tmp_path / "own.txt").write_text("5 6 7 8 <sep> 1 2 3 4 <sep> 4\n")
    row = run_cell(tiny("data.test=0", "measure.file=own.txt"))["row"]
    assert row["n_test"] == 1 and cotcost.load(f"runs/{row['run']}").task.name == "lis"


def test_measured_sequences_are_from_the_split_and_not_trained_on(tiny):
    words = ["task=arithmetic", "task.size=3", "task.capacity=3", "data.train=3000"]
    config = cell_of([*words, "data.validation=50", "data.test=60", "measure.task.size=2"]).config
    task = build_task(config.task)
    data, measured = load_data(config, task), measured_task(config, task)
    other = measured_sequences(config, task, measured, data)
    prompts, trained = (
        {" ".join(task.decode(found, row).prompt) for row in range(len(found))}
        for found in (other, data.train)
    )
    assert len(prompts) == 60 and not prompts & trained
    none = dataclasses.replace(config, data=dataclasses.replace(config.data, test=0, file="a.txt"))
    with pytest.raises(UserError, match=r"count.*needed"):
        measured_sequences(none, task, measured, data)
    split = dataclasses.replace(config, measure=MeasureConfig(split="validation", count=20))
    found = measured_sequences(split, task, task, data)
    assert len(found) == 20 and (found.tokens == data.validation.tokens[:20]).all()


@pytest.mark.parametrize("check", ["require_exact", "require_causal", "require_same_step"])
def test_models_that_cannot_be_measured_are_not_trained(tiny, monkeypatch, check):
    monkeypatch.setattr(f"experiments.run.{check}", Mock(side_effect=UserError("refused")))
    with pytest.raises(UserError, match="refused"):
        run_cell(tiny())
    assert not Run.of(tiny()).checkpoint.exists()


def test_formats_are_table_columns_and_two_bits_are_too_few(tiny, tmp_path):
    words = ["task.size=2", "task.number_range=40", "recipe.steps=300", "recipe.learning_rate=0.03",
             "seed=1"]  # fmt: skip
    formats = ["measure.state_format", "measure.weight_format"]
    rows = [run_and_report(tiny(*words, *own)) for own in ([], *([f"{f}=int2"] for f in formats))]
    table = read_table(tmp_path / "outputs" / "manual").set_index("cell")
    plain, state, weights = (table.loc[row["cell"]] for row in rows)
    assert plain[formats].isna().all() and state[formats[0]] == weights[formats[1]] == "int2"
    assert plain["run"] == state["run"] == weights["run"]
    for rounded in (state, weights):
        assert rounded["answer_accuracy"] < plain["answer_accuracy"] - 0.1


def test_a_slurm_job_out_of_time_leaves_the_cell_unfinished(tiny):
    def fail(event):
        if isinstance(event, TrainingStep):
            raise UncompletedJobError("timed-out too many times")

    config = tiny()
    with pytest.raises(UncompletedJobError):
        run_cell(config, fail)
    assert Run.of(config).record(cell_name(config))["row"]["status"] == "unfinished"
    assert run_cell(config)["row"]["status"] == "done"


def test_cell_that_another_process_trains_is_skipped(tiny):
    config = tiny()
    with Run.of(config).locked(cell_name(config)) as mine:
        assert mine
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.apply(run_cell, [config]) is None
        assert Run.of(config).is_running()
        assert Run.of(config).progress()["cell"] == cell_name(config)
    assert not Run.of(config).is_running()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_with_a_checkpoint(tiny, number):
    def terminate(event):
        if isinstance(event, TrainingStep):
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
    config = tiny("recipe.steps=100000", "recipe.validate_every=20")
    started = time.monotonic()
    row = run_cell(config, terminate)["row"]
    assert row["status"] == "unfinished" and time.monotonic() - started < 60
    assert 0 < load_checkpoint(Run.of(config).checkpoint)["state"]["step"] < 1000


def test_sigterm_during_evaluation_keeps_the_trained_weights(tiny):
    def terminate(event):
        if isinstance(event, Evaluated):
            os.kill(os.getpid(), signal.SIGTERM)

    config = tiny("recipe.steps=20")
    row = run_cell(config, terminate)["row"]
    assert row["status"] == "unfinished" and "during evaluation" in row["reason"]
    stamp = Run.of(config).checkpoint.stat().st_mtime_ns
    assert run_cell(config)["row"]["status"] == "done"
    assert Run.of(config).checkpoint.stat().st_mtime_ns == stamp


def test_half_written_files_of_a_killed_process_are_removed(tiny):
    run = Run.of(tiny())
    (run.folder / ".checkpoint.pt.x1y2").mkdir(parents=True)
    with run.locked("a cell"):
        assert not list(run.folder.glob(".*"))


def test_the_umask_is_respected(tiny):
    before = os.umask(0o007)
    try:
        config = tiny("recipe.steps=20")
        run_and_report(config)
        for path in [Run.of(config).folder / "record.json", Run.of(config).checkpoint]:
            assert path.stat().st_mode & 0o777 == 0o660
    finally:
        os.umask(before)


@pytest.mark.parametrize(("name", "value", "said"), [
    ("PATH", "", "no commit ("), ("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1", "detected dubious"),
])  # fmt: skip
def test_a_missing_commit_gives_a_warning(monkeypatch, capsys, name, value, said):
    """Without git, or in a container whose clone belongs to another user."""
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(HydraConfig, "initialized", lambda: True)
    assert commit.__wrapped__() == ""
    assert said in capsys.readouterr().err


def test_the_commit_is_dirty_if_code_differs_but_not_if_results_do(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.run_folder.ROOT", tmp_path)
    for name in ["train.py", "results/results.csv"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in [["init", "-q"], ["add", "."], [*author, "commit", "-qm", "first"]]:
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "results/results.csv").write_text("2")
    clean = commit.__wrapped__()
    assert len(clean) == 12
    (tmp_path / "mine.py").write_text("1")  # not yet in git
    assert commit.__wrapped__() == f"{clean}-dirty"
    (tmp_path / "mine.py").unlink()
    (tmp_path / "train.py").write_text("2")
    assert commit.__wrapped__() == f"{clean}-dirty"


def test_prompts_of_another_format_are_not_those_of_validation():
    words = ["task=arithmetic", "task.size=1", "data.train=300", "data.validation=100"]
    config = cell_of([*words, "data.test=60", "++measure.task.format=direct"]).config
    task = build_task(config.task)
    data, measured = load_data(config, task), measured_task(config, task)
    found = measured_sequences(config, task, measured, data)
    seen = {bytes(row[:4]) for row in data.validation.tokens}
    assert not seen & {bytes(row[:4]) for row in found.tokens}


def test_integer_states_are_scaled_by_training_sequences(tiny, monkeypatch):
    seen = []
    monkeypatch.setattr("experiments.run.state_rounding", lambda *given: seen.append(len(given[2])))
    run_cell(tiny("measure.state_format=int8", "recipe.steps=20"))
    assert seen == [400]


def test_discarding_begins_with_the_record_of_the_training(tiny, monkeypatch):
    config, moved = tiny("recipe.steps=20"), []
    run_cell(config)
    monkeypatch.setattr("pathlib.Path.rename", lambda path, to: moved.append(path.name))
    Run.of(config).discard(cell_name(config))
    assert moved[0] == "training.json" and "checkpoint.pt" in moved


def test_a_requeued_job_continues_in_spite_of_force(tiny, tmp_path, monkeypatch):
    run_cell(dataclasses.replace(tiny(), machine=Machine(time_limit_seconds=0.001)))
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert run_cell(tiny("force=true"))["row"]["status"] == "done"
    assert not (tmp_path / "runs/.before").exists()


def test_a_signal_handler_of_other_code_is_kept():
    def theirs(*_): ...

    before = signal.signal(signal.SIGTERM, theirs)
    try:
        with noting_stop_signals():
            assert signal.getsignal(signal.SIGTERM) is theirs
    finally:
        signal.signal(signal.SIGTERM, before)
