import dataclasses
import os
import signal
import threading

import pytest
import torch
from commands import TINY

from common import UserError
from config.columns import resolved
from config.compose import compose_plain
from config.identity import cell_name
from config.schema import validate_cell
from records.folders import WeightsFolder
from records.provenance import machine
from sweeps import cell, weights
from training.checkpoint import load_checkpoint, save_checkpoint
from training.distributed import PeerLostError
from training.machine import Machine
from training.trainer import Interrupted, Trainer


@pytest.fixture
def struck():
    """What SIGTERM does to a process that does not heed it, without its end."""
    received = []
    previous = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    yield received
    signal.signal(signal.SIGTERM, previous)


@pytest.mark.parametrize("ending", [Interrupted(), PeerLostError("the others are gone")])
def test_a_signal_on_the_way_to_the_record_does_not_cost_it(tmp_path, monkeypatch, struck, ending):
    """torchrun tells the processes that are left to stop within 0.1 s of one's death."""

    def fit(trainer):
        raise ending

    def hit(run, record):
        os.kill(os.getpid(), signal.SIGTERM)
        assert struck == []
        write(run, record)

    write = cell.CellFolder.write_record
    monkeypatch.setattr(Trainer, "fit", fit)
    monkeypatch.setattr(cell.CellFolder, "write_record", hit)
    monkeypatch.chdir(tmp_path)
    record = cell.run_cell(validate_cell(compose_plain("train", TINY)))
    assert record["status"] == "unfinished"
    os.kill(os.getpid(), signal.SIGTERM)
    assert struck == [signal.SIGTERM]


def test_a_signal_while_evaluating_leaves_the_cell_unfinished_and_its_weights_whole(
    tmp_path, monkeypatch, struck
):
    evaluate = cell.evaluate

    def hit(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(*arguments)

    monkeypatch.chdir(tmp_path)
    config = validate_cell(compose_plain("train", TINY))
    with monkeypatch.context() as patched:
        patched.setattr(cell, "evaluate", hit)
        record = cell.run_cell(config)
    assert record["status"] == "unfinished" and "evaluating" in record["reason"]
    assert struck == []
    [weights] = tmp_path.glob("runs/*/weights.json")
    trained = weights.stat().st_mtime_ns
    assert cell.run_cell(config)["status"] == "done"
    assert weights.stat().st_mtime_ns == trained


def test_a_training_file_of_test_prompts_alone_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("1 + 2 = 3\n")
    both = ["data.file=lines.txt", "data.train_file=lines.txt"]
    with pytest.raises(UserError, match="leaves nothing to train on"):
        cell.run_cell(validate_cell(compose_plain("train", [*TINY, *both])))


def test_force_moves_no_weights_away_under_their_training(tmp_path, monkeypatch):
    """The weights of a plain cell lie in its folder, and another cell's process may train them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cell, "_run_recorded", lambda *given: {})
    config = validate_cell(compose_plain("train", [*TINY, "force=true"]))
    training = WeightsFolder.of(config)
    assert training.acquire()
    training.checkpoint.write_bytes(b"half way")
    again = threading.Thread(target=cell.run_cell, args=(config,))
    again.start()
    while again.is_alive() and not cell.CellFolder.of(config).is_running():
        again.join(0.01)
    again.join(0.5)
    assert again.is_alive() and training.checkpoint.exists()
    training.release()
    again.join(30)
    assert not again.is_alive() and not training.checkpoint.exists()
    assert len(list(tmp_path.glob("runs/.before/*/checkpoint.pt"))) == 1


def test_another_cell_s_configuration_does_not_stay_beside_a_record(tmp_path, monkeypatch):
    """A cell that trains these weights to measure them otherwise may write its own in between."""
    monkeypatch.chdir(tmp_path)
    plain, other = (
        validate_cell(compose_plain("train", [*TINY, *more]))
        for more in ([], ["measure.split=validation"])
    )
    obtain, folder = cell.obtain, WeightsFolder.of(plain)

    def trained_by_the_other(*arguments):
        weights = obtain(*arguments)
        folder.write_config(resolved(other))
        return weights

    monkeypatch.setattr(cell, "obtain", trained_by_the_other)
    record = cell.run_cell(plain)
    assert folder.config()["cell"] == record["cell"] == cell_name(plain)


def test_a_row_tells_where_its_weights_were_trained(tmp_path, monkeypatch):
    """Interrupted on one device, ended on another, measured on a third."""
    monkeypatch.chdir(tmp_path)
    config = validate_cell(compose_plain("train", TINY))
    for name, limit in (("cuda: first", 1e-9), ("cuda: second", None)):
        monkeypatch.setattr(weights, "machine", lambda *_, told=name: {"device": told})
        cut = dataclasses.replace(config, machine=Machine(time_limit_seconds=limit))
        record = cell.run_cell(cut)
        assert record["status"] == ("unfinished" if limit else "done")
    measured_on = machine(torch.device("cpu"))["device"]
    assert record["device"] == measured_on
    assert record["trained_device"] == "cuda: first; cuda: second"


def test_measuring_again_elsewhere_trains_nothing_there(tmp_path, monkeypatch):
    """The weights' record is lost: the finished checkpoint is opened on another device."""
    monkeypatch.chdir(tmp_path)
    config = validate_cell(compose_plain("train", TINY))
    for name in ("cuda: first", "cuda: second"):
        monkeypatch.setattr(weights, "machine", lambda *_, told=name: {"device": told})
        folder = WeightsFolder.of(config).folder
        for lost in ("record.json", "weights.json"):
            (folder / lost).unlink(missing_ok=True)
        assert cell.run_cell(config)["trained_device"] == "cuda: first"


@pytest.mark.parametrize("ended", [False, True])
def test_the_device_of_an_older_checkpoint_is_unknown(tmp_path, monkeypatch, ended):
    monkeypatch.chdir(tmp_path)
    config = validate_cell(compose_plain("train", TINY))
    limit = Machine(time_limit_seconds=None if ended else 1e-9)
    assert (cell.run_cell(dataclasses.replace(config, machine=limit))["status"] == "done") == ended
    weights_folder = WeightsFolder.of(config)
    for lost in ("record.json", "weights.json"):
        (weights_folder.folder / lost).unlink(missing_ok=True)
    content = load_checkpoint(weights_folder.checkpoint)
    del content["state"]["devices"]
    save_checkpoint(weights_folder.checkpoint, content)
    own = machine(torch.device("cpu"))["device"]
    expected = "unknown" if ended else f"unknown; {own}"
    assert cell.run_cell(config)["trained_device"] == expected
