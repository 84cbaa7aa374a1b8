"""From plan to results table by way of a machine without Hydra, in miniature on a CPU."""

import json
import os
import signal
import time

import pandas as pd
import pytest
from bare import run_bare

from benchmarks.gpu import cells, collect, parcel, plan
from errors import RunError, UserError
from experiments.cell import run_cell
from experiments.grid import cells as grid_cells
from experiments.grid import load_experiment
from experiments.store import Run, read_table

TINY = (
    "task.size=2 model.dim=8 model.num_layers=1 model.num_heads=2 recipe.steps=12 "
    "recipe.validate_every=3 data.train=300 data.validation=20 data.test=20"
).split()
ENDLESS = [*TINY, "recipe.steps=100000000", "recipe.stop_at=null"]


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    made = {}
    for name, overrides in {"tiny": TINY, "endless": ENDLESS}.items():
        made[name] = folder / f"{name}.json"
        made[name].write_text(json.dumps(plan.plan("quick", overrides, folder)))
    return made


def options_of(folder, plan_file, *more):
    words = ["--plan", plan_file, "--out", folder / "out", "--runs-dir", folder / "runs"]
    words += ["--data-dir", folder / "data", "--device", "cpu", "--jobs", 2, *more]
    return [str(word) for word in words]


def configs(folder, plan_file):
    options = cells.arguments(options_of(folder, plan_file))
    content = json.loads(plan_file.read_text())
    return [cells.with_settings(cell, options) for cell in content["cells"]]


def stopped_at_first_news(config):
    """Run a cell that is told to stop at its first validation."""

    def stop(values):
        if "validation_loss" in values:
            os.kill(os.getpid(), signal.SIGTERM)

    record = run_cell(config, stop)
    assert record["status"] == "unfinished"
    return record


def accuracy_and_curve(run):
    curve = pd.read_csv(run.folder / "curve.csv").drop(columns="seconds")
    record = run.record()
    kept = ("answer_accuracy", "chain_exact_match", "steps", "stopped", "data_fingerprint", "cell")
    return {key: record[key] for key in kept}, curve


def test_cells_run_bare_resume_and_enter_the_table(tmp_path, planned):
    """Two cells are run there from the start, one is continued from a stopped run that came in
    parts; what is entered equals what the same cells give here, uninterrupted."""
    here, first, second = (tmp_path / name for name in ("here", "first", "second"))
    expected = {}
    for config in configs(here, planned["tiny"]):
        run_cell(config)
        expected[Run.of(config).cell] = accuracy_and_curve(Run.of(config))
    begun = configs(first, planned["tiny"])[1]
    stopped_at_first_news(begun)
    header = parcel.header_of(json.loads(planned["tiny"].read_text()))
    left = parcel.pack(first / "out", header, [Run.of(begun)], checkpoint_mb=45, part_mb=0.01)
    assert left == [] and len(list(first.glob("out/checkpoints.*"))) > 1
    done = run_bare(
        tmp_path, "cells", *options_of(second, planned["tiny"], "--from", first / "out")
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "3 done"
    results = tmp_path / "results"
    where = ["--runs-dir", str(tmp_path / "runs"), "--results-dir", str(results)]
    collect.main([str(first / "out"), str(second / "out"), *where])
    table = read_table(results / "quick" / "results.csv")
    assert set(table["cell"]) == set(expected)
    assert table["status"].eq("done").all() and table["device"].str.startswith("cpu").all()
    assert table["commit"].notna().all()
    for name, (record, curve) in expected.items():
        found, found_curve = accuracy_and_curve(Run(tmp_path / "runs", name))
        assert found == record
        pd.testing.assert_frame_equal(found_curve, curve)
    resumed = pd.read_csv(tmp_path / "runs" / begun_name(begun) / "curve.csv")
    stopped = pd.read_csv(Run.of(begun).folder / "curve.csv")
    assert resumed["seconds"][0] == stopped["seconds"][0]  # trained once, there
    collect.main([str(first / "out"), *where])  # an unfinished record comes late
    assert read_table(results / "quick" / "results.csv")["status"].eq("done").all()


def begun_name(config):
    return Run.of(config).cell


def test_out_of_time_is_unfinished_with_a_checkpoint_and_never_an_accuracy(tmp_path, planned):
    more = ("--minutes", 0.3, "--only", "model=linear,sparse")
    done = run_bare(tmp_path, "cells", *options_of(tmp_path, planned["endless"], *more))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "2 unfinished"
    where = ["--runs-dir", str(tmp_path / "here"), "--results-dir", str(tmp_path / "results")]
    collect.main([str(tmp_path / "out"), *where])
    table = read_table(tmp_path / "results" / "quick" / "results.csv")
    assert table["status"].tolist() == ["unfinished"] * 2
    assert table["answer_accuracy"].isna().all()


def test_evaluation_too_stops_in_time(tmp_path, planned):
    """Training over, time over: unfinished, and the next call only evaluates."""
    config = configs(tmp_path, planned["tiny"])[0]
    cells.work(cells.dataclasses.asdict(config), deadline=0)
    record = Run.of(config).record()
    assert record["status"] == "unfinished" and "answer_accuracy" not in record


def test_only_selects_what_runs_not_what_is_written(tmp_path, planned, monkeypatch):
    """What --from brings of other cells is in --out again, after each cell and at the end."""
    first, second = tmp_path / "first", tmp_path / "second"
    begun = configs(first, planned["tiny"])[0]
    stopped_at_first_news(begun)
    content = json.loads(planned["tiny"].read_text())
    run, header = Run.of(begun), parcel.header_of(content)
    parcel.pack(first / "out", header, [run], checkpoint_mb=45, part_mb=15)
    written = []

    def noted(out, header, runs):
        parcel.write_records(out, header, runs)
        written.append(set(parcel.read_json(out / "records.json")["cells"]))

    monkeypatch.setattr(cells, "write_records", noted)
    monkeypatch.setattr(cells, "work", is_killed)
    other = next(c for c in configs(first, planned["tiny"]) if c.model.name != begun.model.name)
    more = ("--from", first / "out", "--only", f"model={other.model.name}")
    cells.main(options_of(second, planned["tiny"], *more))
    assert written == [{run.cell, Run.of(other).cell}]
    packed = parcel.unpack(second / "out", tmp_path / "third")
    assert set(packed["cells"]) == {run.cell, Run.of(other).cell}
    checkpoint = tmp_path / "third" / run.cell / "checkpoint.pt"
    assert checkpoint.read_bytes() == (run.folder / "checkpoint.pt").read_bytes()


def is_killed(plain, deadline):
    os.kill(os.getpid(), signal.SIGKILL)


def overstays(plain, deadline):
    time.sleep(60)


@pytest.mark.parametrize(
    ("work", "minutes", "status", "reason"),
    [
        (is_killed, 9, "failed", "its process died (-9)"),
        (overstays, 0.05, "unfinished", "stopped at the end of the time"),
    ],
)
def test_killed_is_unfinished_only_at_the_end_of_the_time(
    tmp_path, planned, monkeypatch, work, minutes, status, reason
):
    monkeypatch.setattr(cells, "work", work)
    monkeypatch.setattr(cells, "GRACE_SECONDS", 0.5)
    more = ("--minutes", minutes, "--only", "model=linear", "dim=8")
    cells.main(options_of(tmp_path, planned["tiny"], *more))
    [packed] = parcel.read_json(tmp_path / "out" / "records.json")["cells"].values()
    assert (packed["record"]["status"], packed["record"]["reason"]) == (status, reason)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("error", [UserError, RunError])
def test_an_error_before_the_record_is_its_reason(tmp_path, planned, monkeypatch, begun, error):
    config = configs(tmp_path, planned["endless"])[0]
    if begun:
        stopped_at_first_news(config)

    def fails(config, report):
        raise error("data/x.npz: damaged")

    monkeypatch.setattr(cells, "run_cell", fails)
    cells.work(cells.dataclasses.asdict(config), deadline=0)
    record = Run.of(config).record()
    assert (record["status"], record["reason"]) == ("failed", "data/x.npz: damaged")
    cells._record_death(config, 0, deadline=0)
    assert Run.of(config).record() == record


def test_a_failure_that_the_cell_records_stays(tmp_path, planned, monkeypatch):
    config = configs(tmp_path, planned["endless"])[0]
    monkeypatch.setattr(cells, "run_cell", lambda config, report: run_cell(config, diverged))
    cells.work(cells.dataclasses.asdict(config), deadline=time.time() + 60)
    record = Run.of(config).record()
    assert (record["status"], record["reason"]) == ("failed", "diverged")
    assert "hostname" in record  # more than an outsider knows


def diverged(values):
    raise RunError("diverged")


def test_checkpoints_that_find_no_room_are_named(tmp_path, planned):
    config = configs(tmp_path, planned["endless"])[0]
    stopped_at_first_news(config)
    header = parcel.header_of(json.loads(planned["endless"].read_text()))
    out, run = tmp_path / "out", Run.of(config)
    assert parcel.pack(out, header, [run], checkpoint_mb=0.001, part_mb=1) == [run.cell]
    content = parcel.unpack(out, tmp_path / "there")
    assert content["cells"][run.cell]["record"] == Run(tmp_path / "there", run.cell).record()
    assert not (tmp_path / "there" / run.cell / "checkpoint.pt").exists()


@pytest.mark.parametrize("damage", ["missing", "altered", "not json"])
def test_damaged_folders_are_refused(tmp_path, planned, damage):
    config = configs(tmp_path, planned["endless"])[0]
    stopped_at_first_news(config)
    header = parcel.header_of(json.loads(planned["endless"].read_text()))
    parcel.pack(tmp_path / "out", header, [Run.of(config)], checkpoint_mb=45, part_mb=15)
    part = tmp_path / "out" / "checkpoints.00"
    if damage == "missing":
        part.unlink()
    elif damage == "altered":
        part.write_bytes(part.read_bytes()[:-1])
    else:
        (tmp_path / "out" / "records.json").write_text("{")
    with pytest.raises(UserError, match=str(tmp_path / "out")):
        parcel.unpack(tmp_path / "out", tmp_path / "there")


def test_a_plan_of_other_code_is_refused(tmp_path, planned):
    content = json.loads(planned["tiny"].read_text())
    content["cells"][0]["config"]["recipe"]["learning_rate"] = 0.5
    changed = tmp_path / "plan.json"
    changed.write_text(json.dumps(content))
    with pytest.raises(UserError, match="plan anew"):
        configs(tmp_path, changed)


def test_records_of_another_grid_are_refused(tmp_path, planned):
    config = configs(tmp_path, planned["endless"])[0]
    stopped_at_first_news(config)
    header = parcel.header_of(json.loads(planned["tiny"].read_text()))
    parcel.pack(tmp_path / "out", header, [Run.of(config)], checkpoint_mb=0, part_mb=1)
    where = ["--runs-dir", str(tmp_path / "r"), "--results-dir", str(tmp_path / "results")]
    with pytest.raises(UserError, match="not in the grid of quick"):
        collect.main([str(tmp_path / "out"), *where])


def test_the_plan_holds_the_grids_names_and_the_frontier_comes_first(tmp_path):
    content = plan.plan("table2", [], tmp_path)
    names = {cell.name for cell in grid_cells(load_experiment("table2"))}
    assert {cell["name"] for cell in content["cells"]} == names and len(names) == 60
    first = [
        (c["config"]["model"]["name"], c["config"]["task"]["size"], c["config"]["model"]["dim"])
        for c in content["cells"][:12]
    ]
    assert set(first) == {
        (model, size, dim)
        for model, dims in plan.FRONTIER.items()
        for size, dim in zip((6, 10, 13, 16), dims, strict=True)
    }
    means = {c["config"]["task"]["size"]: c["mean_length"] for c in content["cells"]}
    assert all(20 < mean < 2 * size**2 + 2 * size + 1 for size, mean in means.items())


def test_done_cells_shift_no_frontier(tmp_path):
    """Size 10 keeps its own widths when size 6 is done."""
    full = plan.plan("table2", [], tmp_path)["cells"]
    (tmp_path / "table2").mkdir()
    done = [cell["name"] for cell in full if cell["config"]["task"]["size"] == 6]
    table = pd.DataFrame({"cell": done, "status": "done"})
    table = table.assign(task="arithmetic", size=6, model="standard", dim=64)
    table.to_csv(tmp_path / "table2" / "results.csv", index=False)
    left = [cell["name"] for cell in plan.plan("table2", [], tmp_path)["cells"]]
    assert len(done) == 15
    assert left == [cell["name"] for cell in full if cell["name"] not in done]


def test_done_cells_are_not_planned_again(tmp_path):
    everything = plan.plan("quick", [], tmp_path)["cells"]
    folder = tmp_path / "quick"
    folder.mkdir()
    rows = [
        {"cell": everything[0]["name"], "status": "done"},
        {"cell": everything[1]["name"], "status": "unfinished"},
    ]
    columns = {"task": "arithmetic", "size": 2, "model": "standard", "dim": 16}
    pd.DataFrame([{**row, **columns} for row in rows]).to_csv(folder / "results.csv", index=False)
    left = [cell["name"] for cell in plan.plan("quick", [], tmp_path)["cells"]]
    assert set(left) == {cell["name"] for cell in everything[1:]}
    assert len(plan.plan("quick", [], tmp_path, everything=True)["cells"]) == len(everything)
