"""Every python command in README runs: cells for two steps, sweeps as far as their plan."""

import re
import shlex
from pathlib import Path

import pandas as pd

import plots.__main__
import tasks.__main__

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"(?<!\w)python (?:PATH/)?((?:-m )?\w+(?:\.py)?) ([^`\n#]*)", README)
TERAFLOPS_PER_SECOND = 20  # as README says
MODULES = {"-m plots": plots.__main__.main, "-m tasks": tasks.__main__.main}
TWO_STEPS = ["recipe.steps=2", "recipe.validate_every=1", "data.train=200", "data.validation=20",
             "data.test=20", "logger=none"]  # fmt: skip


def test_commands_of_the_readme_run(command, tmp_path, monkeypatch):
    for name, content in re.findall(r"```(?:python|yaml)\n# (\S+\.\S+)\n(.*?)```", README, re.S):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    assert {program for program, _ in COMMANDS} >= {"train.py", "sweep.py", "evaluate.py"}
    for program, rest in COMMANDS:
        words = shlex.split(rest)
        if program in MODULES:
            assert not MODULES[program](words)
            continue
        if program == "sweep.py" and "status=true" not in words:
            words = ["--config-dir=conf", *words, "dry_run=true"]
        elif program == "train.py" and "cell=EXPERIMENT/ID" not in words:
            words = ["--config-dir=conf", *words, *TWO_STEPS]
            words += ["model.dim=16", "seed=0", "hydra/launcher=basic"] * ("-m" in words)
        table = tmp_path / "outputs/manual/results.csv"  # README's names stand for its first cell
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
