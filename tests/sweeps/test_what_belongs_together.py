"""A run's folder that was edited, mixed up or made by a stranger gives an error, never a number."""

import json
import shutil
import sys

import pytest
import yaml
from commands import TINY

from tasks import store

PAYLOAD = """
from pathlib import Path
from models.linear import LinearAttention
Path({marker!r}).write_text("run")
class Mixer(LinearAttention):
    pass
"""


def run_of(command, *words):
    """Train a tiny cell; return its folder."""
    before = set(command.folder.glob("runs/*"))
    assert command("train.py", *TINY, *words).status == 0
    [made] = set(command.folder.glob("runs/*/record.json")) - {p / "record.json" for p in before}
    return made.parent


def edit(run, change):
    content = yaml.safe_load((run / "config.yaml").read_text())
    change(content)
    (run / "config.yaml").write_text(yaml.safe_dump(content))


def test_the_files_of_two_seeds_are_told_apart(command):
    one, other = run_of(command), run_of(command, "seed=1")
    kept = command.folder / "kept"
    shutil.copytree(one, kept)

    def told(*names, source=other):
        for name in names:
            shutil.copy(source / name, one / name)
        outcome = command("evaluate.py", f"run={one}")
        for path in kept.iterdir():
            shutil.copy(path, one / path.name)
        assert outcome.status == 2, outcome.out
        return outcome.line

    assert "its content is not what its training wrote" in told("checkpoint.pt")
    assert f"of the weights {other.name}, not of {one.name}" in told(
        "checkpoint.pt", "weights.json"
    )
    line = told("checkpoint.pt", "weights.json", "config.yaml")
    assert f"that of cell {other.name}" in line and f"not of {one.name}" in line
    shutil.rmtree(one)
    one.symlink_to(other)
    linked = command("evaluate.py", f"run={one}")
    assert linked.status == 2 and linked.line.removeprefix(f"error: run={one}: ") in line
    one.rename(one.with_name("latest"))
    assert command("evaluate.py", f"run={one.with_name('latest')}").status == 0
    elsewhere = command.folder / "best"
    elsewhere.symlink_to(other)
    assert command("evaluate.py", f"run={elsewhere}").status == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["task"].update(size=3),
        lambda c: c["data"].update(seed=5),
        lambda c: c["model"].update(num_heads=4),
    ],
    ids=["size", "data seed", "heads"],
)
@pytest.mark.parametrize("named", [True, False], ids=["", "without its name"])
def test_an_edited_configuration_gives_no_number(command, change, named):
    run = run_of(command)
    edit(run, change)
    if not named:
        edit(run, lambda content: content.pop("cell"))
    outcome = command("evaluate.py", f"run={run}")
    assert outcome.status == 2 and "cell" in outcome.line
    assert ("was it edited?" in outcome.line) == named


@pytest.mark.parametrize("line", ["me: &m {x: *m}", f"n: {'9' * 6000}"], ids=["alias", "digits"])
def test_a_strangers_yaml_is_refused_in_a_line(command, line):
    folder = command.folder / "runs/0123456789ab"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"task: {{name: lis}}\n{line}\n")
    for program, word in (
        ("evaluate.py", f"run={folder}"), ("train.py", f"config={folder / 'config.yaml'}"),
    ):  # fmt: skip
        outcome = command(program, word)
        assert outcome.status == 2 and "not readable as YAML" in outcome.line


def test_weights_without_their_record_are_judged_by_the_checkpoint(command):
    run = run_of(command)
    (run / "weights.json").write_text("{")
    outcome = command("evaluate.py", f"run={run}")
    assert outcome.status == 0 and outcome.err == ""
    assert "status" not in json.loads(outcome.out.splitlines()[-1])


def test_weights_are_not_measured_on_other_data_than_theirs(command):
    """A set that says of itself what it holds, as another version would build it."""
    run = run_of(command)
    [stored] = command.folder.glob("data/*/meta.json")
    shutil.rmtree(stored.parent / "test")
    shutil.copytree(stored.parent / "validation", stored.parent / "test")
    state = stored.parent / "test" / "state.json"
    state.write_text(state.read_text().replace("-validation", "-test"))
    sets = {split: store._load_split(stored.parent / split) for split in store.SPLITS}
    meta = json.loads(stored.read_text())
    stored.write_text(json.dumps({**meta, "fingerprint": store.fingerprint(sets)}))
    outcome = command("evaluate.py", f"run={run}")
    assert outcome.status == 2 and f"but {run} was trained on" in outcome.line
    shutil.rmtree(stored.parent)
    assert command("evaluate.py", f"run={run}").status == 0


@pytest.mark.parametrize("trusted", [[], ["trust=true"]], ids=["", "trusted"])
def test_no_code_runs_from_a_runs_folder(command, monkeypatch, trusted):
    run = run_of(command)
    run = run.rename(run.with_name("stranger"))
    edit(run, lambda c: c["model"]["mixer"].update(_target_="runs.stranger.payload.Mixer"))
    (run / "payload.py").write_text(PAYLOAD.format(marker=str(command.folder / "ran")))
    monkeypatch.syspath_prepend(str(command.folder))
    for program, word in (
        ("evaluate.py", f"run={run}"), ("train.py", f"config={run / 'config.yaml'}"),
    ):  # fmt: skip
        outcome = command(program, word, *trusted)
        assert outcome.status == 2, outcome.out
        told = "no code is run" if trusted else "code from outside the project"
        assert told in outcome.line
    assert not (command.folder / "ran").exists()


def test_code_from_elsewhere_runs_only_when_trusted(command, monkeypatch, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "payload.py").write_text(PAYLOAD.format(marker=str(elsewhere / "ran")))
    monkeypatch.syspath_prepend(str(elsewhere))
    run = run_of(command, "model.mixer._target_=payload.Mixer")  # the person's own word
    (elsewhere / "ran").unlink()
    words = [f"run={run}"]
    sys.modules.pop("payload")
    outcome = command("evaluate.py", *words)
    assert outcome.status == 2 and "trust=true, or COTCOST_TRUST=payload" in outcome.line
    assert "payload" not in sys.modules and not (elsewhere / "ran").exists()
    assert command("evaluate.py", *words, "trust=true").status == 0
    assert (elsewhere / "ran").exists()
    monkeypatch.setenv("COTCOST_TRUST", "other:payload")
    assert command("evaluate.py", *words).status == 0
    again = command("train.py", f"config={run / 'config.yaml'}", "logger=none")
    assert again.status == 0 and "already done" in again.out
    assert command("train.py", f"config={run / 'config.yaml'}", "trust=perhaps").status == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(mixer=None, mixers=[{"_target_": "payload.Mixer"}]),
        lambda m: m.update(mixer=None, construct={"_target_": "payload.build"}),
        lambda m: m["mixer"].update(inner=[{"_target_": "payload.Mixer"}]),
        lambda m: m["mixer"].update(_target_="shutil.rmtree"),
        lambda m: m["mixer"].update(_target_="tasks_of_mine.Mixer"),
    ],
    ids=["mixers", "construct", "nested", "standard library", "like ours"],
)
def test_code_is_looked_for_wherever_a_configuration_may_name_it(command, change):
    run = run_of(command)
    edit(run, lambda content: change(content["model"]))
    for program, word in (
        ("evaluate.py", f"run={run}"), ("train.py", f"config={run / 'config.yaml'}"),
    ):  # fmt: skip
        outcome = command(program, word)
        assert outcome.status == 2 and "code from outside the project" in outcome.line


def test_a_strangers_data_folder_is_not_filled(command):
    run = run_of(command)
    edit(run, lambda content: content.update(data_dir=str(command.folder / "somewhere")))
    assert command("evaluate.py", f"run={run}").status == 0
    assert not (command.folder / "somewhere").exists()
