"""What W&B holds, read back with its own tools; what happens to a run when W&B fails."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import wandb
import yaml
from commands import TINY
from fake_wandb import FakeWandb
from wandb.util import get_core_path

from config.files import read_config
from config.schema import LoggerConfig
from records.table import read_table
from sweeps import wandb_mirror as tracking
from sweeps.wandb_mirror import Tracker, track_cell, track_figures

CELL = [word for word in TINY if word != "logger=none"]
KEY = "a" * 40


@pytest.fixture(autouse=True)
def fresh_wandb(tmp_path, monkeypatch):
    """Nobody's account, no earlier failure, a service process of the test's own."""
    wandb.teardown()
    monkeypatch.setattr(tracking, "_online_failed", False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    yield
    tracking._give_up_service()


@pytest.fixture
def patient(monkeypatch):
    """W&B's limits, out of a busy machine's way."""
    for name in ("INIT_SECONDS", "UPLOAD_SECONDS", "CALL_SECONDS"):
        monkeypatch.setattr(tracking, name, 300)


@pytest.fixture
def server(monkeypatch):
    fake = FakeWandb()
    monkeypatch.setenv("WANDB_BASE_URL", fake.url)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    yield fake
    fake.close()


def wandb_tool(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def inspect(directory, *flags):
    """`wandb leet inspect`, without the second that starting its Python wrapper takes."""
    (log,) = directory.glob("*.wandb")
    return wandb_tool(get_core_path(), "leet", "inspect", "--json", *flags, "--run-file", log)


def directories(folder, cell="*"):
    return sorted((folder / "wandb").glob(f"*run-*-{cell}"))


def records(directory):
    """Every record of a run's log, by type."""
    by_type = {}
    for line in inspect(directory).splitlines():
        record = json.loads(line)
        by_type.setdefault(record["type"], []).append(record[record["type"]])
    return by_type


def state(directory):
    return json.loads(inspect(directory, "--summary"))


def logged(directory, metric):
    points = [item["item"] for item in records(directory).get("history", [])]
    return [(point["step"], point[metric]) for point in points if metric in point]


def offline(tmp_path):
    return LoggerConfig(mode="offline", directory=str(tmp_path))


def online(tmp_path):
    return LoggerConfig(mode="online", directory=str(tmp_path))


def service_process():
    """The process id of W&B's service, a child of ours."""
    found = subprocess.run(
        ["pgrep", "-n", "-P", str(os.getpid()), "wandb-core"], capture_output=True, text=True
    )
    return int(found.stdout)


def some_figures(tmp_path):
    figure, axes = plt.subplots()
    axes.plot([1, 2])
    for suffix in ("png", "pdf"):
        figure.savefig(tmp_path / f"heatmap.{suffix}")
    plt.close(figure)
    (tmp_path / "report.html").write_text("<p>a report</p>")
    return [tmp_path / name for name in ("heatmap.png", "heatmap.pdf", "report.html")]


def test_a_cell_is_one_run_with_config_curve_and_summary(command, tmp_path):
    outcome = command("train.py", *CELL, "experiment_name=trial", "seed=3")
    assert outcome.status == 0
    [folder] = (tmp_path / "runs").glob("[0-9a-f]*")
    record = json.loads((folder / "record.json").read_text())
    [directory] = directories(tmp_path)
    [run] = records(directory)["run"]
    assert run["run_id"] == record["cell"]
    assert (run["run_group"], run["job_type"]) == ("trial", "cell")
    assert set(run["tags"]) >= {"task:arithmetic", "model:standard", "dim:8", "size:2", "seed:3"}
    shown = state(directory)
    assert (shown["state"], shown["exit_code"]) == ("finished", 0)
    assert shown["config"] == yaml.safe_load((folder / "config.yaml").read_text())
    measured = {key: record[key] for key in record.keys() - {"sealed", "digests", "digest"}}
    assert {key: shown["summary"].get(key) for key in measured} == measured
    curve = pd.read_csv(folder / "curve.csv")
    for metric in ("validation_loss", "train_loss", "learning_rate"):
        steps, values = zip(*logged(directory, metric), strict=True)
        assert list(steps) == [2, 4]
        assert list(values) == pytest.approx(list(curve[metric]))


def test_every_curve_is_drawn_against_our_step(tmp_path):
    tracker = Tracker(offline(tmp_path))
    tracker.use_own_step()
    tracker.finish()
    metrics = records(directories(tmp_path)[0])["metric"]
    assert {"glob_name": "*", "step_metric": "step"}.items() <= metrics[1].items()


def test_no_logger_no_trace(command, tmp_path):
    assert command("train.py", *TINY).status == 0
    assert not (tmp_path / "wandb").exists()


def test_a_failed_cell_is_marked_so(command, tmp_path, monkeypatch):
    def fail(*arguments):
        raise MemoryError

    monkeypatch.setattr("sweeps.cell.evaluate", fail)
    assert command("train.py", *CELL).status == 1
    shown = state(directories(tmp_path)[0])
    assert shown["exit_code"] == 1
    assert shown["summary"]["status"] == "failed"
    assert shown["summary"]["reason"].startswith("out of memory; micro_batch_size=N")


def cell_config(tmp_path, command, **logger):
    assert command("train.py", *TINY).status == 0
    [path] = (tmp_path / "runs").glob("*/config.yaml")
    config, content = read_config(path)
    return dataclasses.replace(config, logger=LoggerConfig(**logger)), content["cell"]


def interrupted_cell(tmp_path, command, **logger):
    """A cell interrupted at step 4 and resumed to step 8: its own records, and its two runs."""
    config, cell = cell_config(tmp_path, command, directory=str(tmp_path), **logger)
    folder = tmp_path / "interrupted"
    folder.mkdir()
    tracker = track_cell(config, cell, folder)
    for step in (2, 4):
        tracker.log({"step": step, "validation_loss": 1 / step})
    tracker.finish()
    (folder / "curve.csv").write_text("step,validation_loss\n2,0.5\n4,0.25\n")
    (folder / "checkpoint.pt").touch()
    time.sleep(1.1)  # directories are named by the second
    tracker = track_cell(config, cell, folder)
    for step in (6, 8):
        tracker.log({"step": step, "validation_loss": 1 / step})
    tracker.summarise({"answer_accuracy": 0.75})
    tracker.finish()
    return cell


WHOLE_CURVE = [(2, 0.5), (4, 0.25), (6, 1 / 6), (8, 0.125)]


def test_a_resumed_cell_holds_the_whole_curve_and_syncs_as_one_run(
    command, tmp_path, server, monkeypatch
):
    cell = interrupted_cell(tmp_path, command, mode="offline")
    first, second = directories(tmp_path, cell)
    assert logged(first, "validation_loss") == WHOLE_CURVE[:2]
    assert logged(second, "validation_loss") == WHOLE_CURVE
    assert not server.history
    wandb_tool(sys.executable, "-m", "wandb", "sync", first, second)
    assert server.curve(cell, "validation_loss") == WHOLE_CURVE
    assert server.summary[cell]["answer_accuracy"] == 0.75
    assert list(server.upserts) == [cell]


def test_a_damaged_curve_is_left_out(command, tmp_path):
    config, cell = cell_config(tmp_path, command, mode="offline", directory=str(tmp_path))
    (tmp_path / "checkpoint.pt").touch()
    (tmp_path / "curve.csv").write_text("step,validation_loss\n2,half\n")
    track_cell(config, cell, tmp_path).finish()
    assert "history" not in records(directories(tmp_path)[0])


def test_figures_are_a_run_of_their_own(tmp_path):
    table = pd.DataFrame({"cell": ["a", "b"], "dim": [8, 16], "answer_accuracy": [0.5, None]})
    for _ in range(2):
        track_figures(offline(tmp_path), "trial", "make it", some_figures(tmp_path), table)
        time.sleep(1.1)  # directories are named by the second
    found = directories(tmp_path)
    assert len(found) == 2
    for directory in found:
        held = records(directory)
        [run] = held["run"]
        assert (run["run_group"], run["job_type"]) == ("trial", "figures")
        summary = state(directory)["summary"]
        assert (directory / "files" / summary["heatmap"]["path"]).stat().st_size > 1000
        assert summary["heatmap"]["_type"] == "image-file"
        stored = json.loads((directory / "files" / summary["results"]["path"]).read_text())
        assert stored["columns"] == ["cell", "dim", "answer_accuracy"]
        assert stored["data"] == [["a", 8, 0.5], ["b", 16, None]]
        artifact = next(a for a in held["artifact"] if a["name"] == "trial-report")
        assert artifact["type"] == "report"
        assert [entry["path"] for entry in artifact["manifest"]["contents"]] == ["report.html"]


def test_a_real_results_table_can_be_sent(tmp_path, patient):
    table = read_table(Path("results/quick/results.csv"))
    track_figures(offline(tmp_path), "quick", "", [], table)
    [directory] = directories(tmp_path)
    summary = state(directory)["summary"]
    assert summary["results"]["nrows"] == len(table)


def test_on_line_it_is_the_same(tmp_path, server, command):
    cell = interrupted_cell(tmp_path, command, mode="online")
    assert server.curve(cell, "validation_loss") == WHOLE_CURVE
    assert server.summary[cell]["answer_accuracy"] == 0.75
    sent = server.upserts[cell]
    assert (sent["groupName"], sent["jobType"]) == ("manual", "cell")
    assert "model:standard" in sent["tags"]
    assert json.loads(sent["config"])["model"]["value"]["dim"] == 8


def test_without_a_key_it_goes_offline_with_one_line(tmp_path, capsys, monkeypatch, patient):
    monkeypatch.setattr("builtins.input", lambda *a: pytest.fail("it asked"))
    for name in ("first", "second"):
        tracker = Tracker(online(tmp_path), id=name)
        tracker.log({"step": 1, "loss": 2.0})
        tracker.finish()
        assert logged(directories(tmp_path, name)[0], "loss") == [(1, 2.0)]
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: W&B: offline: no API key")
    assert "wandb sync" in line


def test_without_a_network_it_goes_offline_in_bounded_time(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    started = time.monotonic()
    tracker = Tracker(online(tmp_path), id="cell")
    tracker.log({"step": 1, "loss": 2.0})
    tracker.finish()
    assert time.monotonic() - started < 40
    assert logged(directories(tmp_path)[0], "loss") == [(1, 2.0)]
    [line] = capsys.readouterr().err.splitlines()
    assert "offline" in line


def test_a_network_that_goes_away_keeps_nobody_waiting(tmp_path, server, monkeypatch):
    monkeypatch.setattr(tracking, "UPLOAD_SECONDS", 1)
    tracker = Tracker(online(tmp_path), id="cell")
    tracker.log({"step": 1, "loss": 2.0})
    server.close()
    started = time.monotonic()
    tracker.log({"step": 2, "loss": 1.0})
    tracker.finish()
    assert time.monotonic() - started < 20
    assert logged(directories(tmp_path)[0], "loss") == [(1, 2.0), (2, 1.0)]


def test_a_killed_service_costs_one_warning_and_the_next_cell_has_its_own(tmp_path, capsys):
    tracker = Tracker(offline(tmp_path), id="first")
    tracker.log({"step": 1, "loss": 2.0})
    os.kill(service_process(), signal.SIGKILL)
    for step in range(2, 5):
        tracker.log({"step": step, "loss": 1.0})
    tracker.summarise({"answer_accuracy": 1.0})
    tracker.finish()
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: W&B: ")
    tracker = Tracker(offline(tmp_path), id="second")
    tracker.log({"step": 1, "loss": 2.0})
    tracker.finish()
    assert logged(directories(tmp_path, "second")[0], "loss") == [(1, 2.0)]


def test_a_service_that_hangs_is_left_behind(tmp_path, capsys, monkeypatch):
    tracker = Tracker(offline(tmp_path), id="first")
    os.kill(service_process(), signal.SIGSTOP)
    monkeypatch.setattr(tracking, "CALL_SECONDS", 1)
    started = time.monotonic()
    tracker.finish()
    assert time.monotonic() - started < 10
    [line] = capsys.readouterr().err.splitlines()
    assert "no answer within 1 s" in line
    monkeypatch.undo()
    Tracker(offline(tmp_path), id="second").finish()
    assert directories(tmp_path, "second")


def test_a_process_whose_service_was_killed_ends_without_a_word(tmp_path):
    """W&B's own hook at exit would wait for the service, or print a traceback."""
    program = f"""
from sweeps.wandb_mirror import Tracker
from config.schema import LoggerConfig
import os, subprocess
tracker = Tracker(LoggerConfig(mode="offline", directory={str(tmp_path)!r}))
subprocess.run(["pkill", "-KILL", "-P", str(os.getpid()), "wandb-core"])
tracker.log({{"step": 1}})
tracker.log({{"step": 2}})
tracker.finish()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("error", [RuntimeError("no such thing"), SystemExit(3), OSError()])
def test_an_init_that_raises_costs_no_cell(command, tmp_path, monkeypatch, error):
    def init(**arguments):
        raise error

    monkeypatch.setattr(wandb, "init", init)
    outcome = command("train.py", *CELL)
    assert outcome.status == 0
    [path] = (tmp_path / "runs").glob("*/record.json")
    assert json.loads(path.read_text())["status"] == "done"
    [line] = [line for line in outcome.err.splitlines() if "W&B" in line]
    assert line.startswith("warning: W&B: ")
