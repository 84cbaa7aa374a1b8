"""What README shows is what runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def write_blocks(text, folder):
    """Write the fenced blocks that name a file in their first line, and return their names."""
    blocks = re.findall(r"^( *)```(?:python|yaml)\n *# (\S+)\n(.*?)```", text, re.DOTALL | re.M)
    for indent, name, content in blocks:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(re.sub(rf"^{indent}", "", content, flags=re.M))
    return {name for _, name, _ in blocks}


def run(words, folder):
    """Run python with `words` in a folder whose modules it finds."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder, capture_output=True, text=True, check=False, timeout=500,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_readme_is_short():
    assert len(README.split()) < 1500


def anchors_of(page):
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))],
    ids=lambda page: str(page.relative_to(ROOT)),
)  # fmt: skip
def test_links_of_a_page_lead_somewhere(page):
    links = re.findall(r"\]\((?!http)([^)]+)\)", page.read_text(encoding="utf-8"))
    for path, _, anchor in (link.partition("#") for link in links):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors_of(target), f"{path}#{anchor}"


def test_the_mixer_and_the_experiment_of_the_readme_run_outside_the_repository(tmp_path):
    names = write_blocks(README, tmp_path)
    assert {"my_mixer.py", "conf/model/mean.yaml", "conf/experiment/mine.yaml"} <= names
    short = "task.size=2 recipe.steps=4 recipe.validate_every=2 data.train=300 data.validation=20"
    listed = ",".join(f'"{word}"' for word in [*short.split(), "data.test=20", "model.dim=8"])
    program = [str(ROOT / "sweep.py"), "--config-dir=conf", "experiment=mine"]
    run([*program, "logger=none", f"overrides=[{listed}]"], tmp_path)
    rows = pd.read_csv(tmp_path / "results/mine/results.csv")
    assert set(rows["model"]) == {"mean", "standard"} and set(rows["status"]) == {"done"}
    mean = rows[rows["model"] == "mean"].iloc[0]
    assert mean["flops_total"] > mean["flops_linear_layers"] > 0
    assert (tmp_path / "results/mine/figures/heatmap.pdf").exists()


def test_the_mixer_of_the_readme_is_held_to_what_ours_keep(tmp_path):
    """From outside the repository; it has no plain form to be compared with."""
    write_blocks(README, tmp_path)
    said = check_from_outside("tests/models/test_every_model.py", "mean and not running", tmp_path)
    assert re.search(r"\d\d passed, 7 skipped", said)


def test_the_task_for_contributors_is_held_to_what_ours_keep_and_trains(tmp_path):
    assert write_blocks(CONTRIBUTING, tmp_path) == {"my_task.py", "conf/task/parity.yaml"}
    said = check_from_outside("tests/tasks/test_every_task.py", "parity", tmp_path)
    assert re.search(r" 1\d passed", said) and "skipped" not in said
    short = "model=linear model.dim=16 data=quick data.train=300 recipe=quick recipe.steps=3"
    words = ["--config-dir=conf", "task=parity", *short.split(), "logger=none"]
    assert "answer" in run([str(ROOT / "train.py"), *words], tmp_path)


def check_from_outside(file, name, folder):
    """What pytest says of one name of a file that finds configurations by itself."""
    words = ["-m", "pytest", "-p", "no:cacheprovider", "-n0", "--override-ini=addopts="]
    return run([*words, str(ROOT / file), f"--config-dir={folder / 'conf'}", "-k", name], folder)


def test_every_command_of_the_readme_names_what_is_there():
    for program in re.findall(r"python (?:-m )?(?!-m)([\w.]+)(?:\.py)? ", README):
        name = program.removesuffix(".py")
        if name == "venv":
            continue
        assert (ROOT / f"{name.replace('.', '/')}.py").exists() or (ROOT / name).is_dir(), program
    for kind, name in re.findall(r"\b(experiment|recipe|logger)=([a-z0-9_]+)\b", README):
        known = {path.stem for path in (ROOT / "conf" / kind).glob("*.yaml")}
        assert name in known | {"mine"}, f"{kind}={name}"
