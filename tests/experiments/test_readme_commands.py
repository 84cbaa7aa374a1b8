"""Commands and examples in README and CONTRIBUTING run (cells: a few steps, sweeps: dry runs)."""

import re
import shlex
import sys

import pandas as pd
import pytest
from processes import ROOT, output

import plots.__main__
import tasks.__main__

README, CONTRIBUTING = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md")
)
COMMANDS = re.findall(r"(?<!\w)python (?:PATH/)?((?:-m )?\w+(?:\.py)?) ([^`\n#]*)", README)
MEASURED = ["cell", "run", "answer_accuracy", "flops_total", "data_fingerprint"]
TERAFLOPS_PER_SECOND = 20  # as stated in README
MODULES = {"-m plots": plots.__main__.main, "-m tasks": tasks.__main__.main}
TWO_STEPS = ["recipe.steps=2", "recipe.validate_every=1", "data.train=200", "data.validation=20",
             "data.test=20", "logger=none"]  # fmt: skip


@pytest.fixture
def examples(tmp_path, monkeypatch):
    """Write each code block whose first line is a comment with a file name to that file."""
    block = r"```(?:python|yaml)\n# (\S+\.\S+)\n(.*?)```"
    for name, content in re.findall(block, README + CONTRIBUTING, re.DOTALL):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)  # stale import
    monkeypatch.syspath_prepend(tmp_path)


def test_commands_of_the_readme_run(examples, command, tmp_path):
    assert {program for program, _ in COMMANDS} >= {"train.py", "sweep.py", "evaluate.py"}
    hours_checked = 0
    for program, rest in COMMANDS:
        words = shlex.split(rest)
        if program in MODULES:
            assert not MODULES[program](words)
            continue
        if program == "sweep.py" and "status=true" not in words:
            words = ["--config-dir=conf", *words, "dry_run=true"]
            timed = re.search(rf"{re.escape(rest)}` \| \d+ (core-)?hours", README)
            words += ["only.dim=16"] * bool(timed)
        elif program == "train.py" and "cell=EXPERIMENT/ID" not in words:
            words = ["--config-dir=conf", *words, *TWO_STEPS]
            words += ["task.size=2"] * ("task.size" not in rest)
            words += ["model.dim=16", "seed=0", "hydra/launcher=basic"] * ("-m" in words)
        table = tmp_path / "outputs/manual/results.csv"  # placeholders stand for its first cell
        first = pd.read_csv(table).iloc[0] if table.exists() else {"run": "", "cell": ""}
        placeholders = {"0123456789ab": first["run"], "EXPERIMENT/ID": f"manual/{first['cell']}"}
        for name, value in placeholders.items():
            words = [word.replace(name, value) for word in words]
        done = command(program, *words)
        assert done.status == 0, (program, words, done.err)
        if hours := re.search(rf"{program} {re.escape(rest)}` \| (\d+) GPU-hours", README):
            tera = [line.split()[-2] for line in done.out.splitlines() if " missing " in line]
            seconds = sum(float(text.replace(",", "")) for text in tera) / TERAFLOPS_PER_SECOND
            assert round(seconds / 3600) == int(hours[1])
            hours_checked += 1
    assert hours_checked == README.count(" GPU-hours |")


def test_mixer_and_experiment_of_the_readme_run(examples, command, tmp_path):
    listed = ",".join(f'"{word}"' for word in [*TWO_STEPS[:-1], "task.size=2"])
    words = ["--config-dir=conf", "experiment=mine", "logger=none", "hydra/launcher=basic",
             f"overrides=[{listed}]", "only.dim=16", "only.seed=0"]  # fmt: skip
    done = command("sweep.py", *words)
    assert done.status == 0, done.err
    rows = pd.read_csv(tmp_path / "outputs/mine/results.csv").set_index("model")
    assert set(rows.index) == {"mean", "standard"} and set(rows["status"]) == {"done"}
    assert rows.loc["mean", "flops_total"] > rows.loc["mean", "flops_linear_layers"] > 0
    assert (tmp_path / "outputs/mine/figures/heatmap.png").exists()
    words = [f"run=runs/{rows.loc['mean', 'run']}", "show=2"]
    assert "my_mixer.RunningMean" in command("evaluate.py", *words).line  # without trust
    told = command("evaluate.py", *words, "trust=true").out
    assert told.count("prompt ") == 2 and '"answer_accuracy"' in told.splitlines()[-1]
    cell = [f"cell=mine/{rows.loc['mean', 'cell']}", "force=true", "logger=none"]
    assert "my_mixer.RunningMean" in command("train.py", *cell).line
    assert command("train.py", *cell, "trust=true").status == 0
    again = pd.read_csv(tmp_path / "outputs/manual/results.csv").iloc[0]
    assert (again[MEASURED] == rows.loc["mean", MEASURED]).all()
    assert list((tmp_path / "runs/.before").glob(f"{again['run']}-*/checkpoint.pt"))
    with (tmp_path / "my_mixer.py").open("a") as file:
        file.write("# edited\n")
    assert "has changed" in command("evaluate.py", *words, "trust=true").line
    assert "has changed" in command("train.py", *cell, "trust=true").line


def test_task_of_contributing_trains(examples, command):
    words = ["--config-dir=conf", "task=parity", "model=linear", "model.dim=16", *TWO_STEPS]
    assert "answers" in command("train.py", *words).out


def test_task_of_contributing_on_the_command_line(examples, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def printed(*words):
        assert tasks.__main__.main(words) == 0
        return capsys.readouterr().out

    (tmp_path / "lines.txt").write_text(printed("sample", "parity", "--count", "5"))
    assert printed("check", "parity", "lines.txt") == "5 lines, 5 valid, 0 invalid\n"
    build = ["build", "parity", "--train", "100", "--test", "50"]
    built = printed(*build).splitlines()
    with (tmp_path / "my_task.py").open("a") as file:
        file.write("# an edit makes another data set\n")
    edited = printed(*build).splitlines()
    assert edited[0] != built[0] and edited[1] == built[1]


def test_examples_pass_the_model_and_task_tests(examples, tmp_path):
    files = ["models/test_every_model.py", "tasks/test_every_task.py"]
    words = [*(str(ROOT / "tests" / name) for name in files), f"--config-dir={tmp_path / 'conf'}",
             "-q", "-n0", "-p", "no:cacheprovider", "--override-ini=addopts=",
             "-k", "(mean and not running) or parity"]  # fmt: skip
    output("-m", "pytest", *words, cwd=tmp_path, PYTHONPATH=f"{tmp_path}:{ROOT}")
