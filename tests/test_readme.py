"""What README shows is what runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    """The fenced blocks of one language, by the file that their first line names."""
    found = re.findall(rf"```{language}\n# (\S+)\n(.*?)```", README, re.DOTALL)
    return dict(found)


def test_readme_is_short_and_its_links_lead_somewhere():
    assert len(README.split()) < 1500
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / link).exists(), link


def test_the_mixer_and_the_experiment_of_the_readme_run_outside_the_repository(tmp_path):
    files = blocks("python") | blocks("yaml")
    assert {"my_mixer.py", "conf/model/mean.yaml", "conf/experiment/mine.yaml"} <= files.keys()
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    short = "task.size=2 recipe.steps=4 recipe.validate_every=2 data.train=300 data.validation=20"
    listed = ",".join(f'"{word}"' for word in [*short.split(), "data.test=20", "model.dim=8"])
    done = subprocess.run(
        [sys.executable, str(ROOT / "sweep.py"), "--config-dir=conf", "experiment=mine",
         "logger=none", f"overrides=[{listed}]"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = pd.read_csv(tmp_path / "results/mine/results.csv")
    assert set(rows["model"]) == {"mean", "standard"} and set(rows["status"]) == {"done"}
    mean = rows[rows["model"] == "mean"].iloc[0]
    assert mean["flops_total"] > mean["flops_linear_layers"] > 0
    assert (tmp_path / "results/mine/figures/heatmap.pdf").exists()


def test_every_command_of_the_readme_names_what_is_there():
    for program in re.findall(r"python (?:-m )?(?!-m)([\w.]+)(?:\.py)? ", README):
        name = program.removesuffix(".py")
        if name == "venv":
            continue
        assert (ROOT / f"{name.replace('.', '/')}.py").exists() or (ROOT / name).is_dir(), program
    for kind, name in re.findall(r"\b(experiment|recipe|logger)=([a-z0-9_]+)\b", README):
        known = {path.stem for path in (ROOT / "conf" / kind).glob("*.yaml")}
        assert name in known | {"mine"}, f"{kind}={name}"
