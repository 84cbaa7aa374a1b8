"""What README and CONTRIBUTING show is there, and runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MOST_WORDS = {"README.md": 900, "CONTRIBUTING.md": 700}
GROUPS = {path.parent.name for path in (ROOT / "conf").glob("*/*.yaml")}


def write_files(text, folder):
    """Write the code blocks whose first line is a comment with a file's name."""
    for name, content in re.findall(r"```(?:python|yaml)\n# (\S+\.\S+)\n(.*?)```", text, re.DOTALL):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def run(words, folder):
    """Run python in ``folder``, as somebody does who has the repository elsewhere."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder, capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", MOST_WORDS)
def test_page_is_short(name):
    assert len((ROOT / name).read_text(encoding="utf-8").split()) <= MOST_WORDS[name]


def test_documents_are_short():
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in PAGES[2:]) <= 10_000


def anchors_of(page):
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\((?!http)([^)]+)\)", page.read_text(encoding="utf-8"))
    for path, _, anchor in (link.partition("#") for link in links):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors_of(target), f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_in_backquotes_exist(page):
    paths = re.findall(r"`([\w/]+/[\w/.]+\.(?:py|yaml|json))`", page.read_text(encoding="utf-8"))
    assert [path for path in paths if not (ROOT / path).exists() and "NAME" not in path] == []


def keys_of(config, folder=ROOT / "conf"):
    """Top-level keys of conf/<config>.yaml and of its machine settings, and the groups."""
    own = yaml.safe_load((folder / f"{config}.yaml").read_text())
    return GROUPS | {*own, *yaml.safe_load((folder / "machine/default.yaml").read_text())}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_name_keys_and_choices_that_exist(page):
    text = page.read_text(encoding="utf-8")
    for script, rest in re.findall(r"python (?:\S+/)?(train|sweep|evaluate)\.py ([^`\n#|]*)", text):
        for word in rest.split():
            key, equals, value = word.strip("'\"").lstrip("+").partition("=")
            if not equals or key.startswith("--"):
                continue
            assert key.partition(".")[0] in keys_of(script) | {"hydra", "hydra/launcher"}, word
            known = {path.stem for path in (ROOT / "conf" / key).glob("*.yaml")}
            assert not known or set(value.split(",")) <= known | {"mean", "mine", "parity"}, word
    for name in re.findall(r"python -m (\w+)", text):
        assert name in ("pytest", "venv") or (ROOT / name / "__main__.py").exists(), name
    for name in re.findall(r"python -m benchmarks ([a-z]+)", text):
        assert (ROOT / f"benchmarks/{name}.py").exists(), name


def test_mixer_and_experiment_of_the_readme_run_from_another_folder(tmp_path):
    write_files(README, tmp_path)
    short = ["task.size=2", "recipe.steps=4", "recipe.validate_every=2", "data.train=300",
             "data.validation=20", "data.test=20"]  # fmt: skip
    listed = ",".join(f'"{word}"' for word in short)
    words = [str(ROOT / "sweep.py"), "--config-dir=conf", "experiment=mine", "logger=none"]
    run([*words, f"overrides=[{listed}]", "only.dim=16", "only.seed=0"], tmp_path)
    rows = pd.read_csv(tmp_path / "outputs/mine/results.csv").set_index("model")
    assert set(rows.index) == {"mean", "standard"} and set(rows["status"]) == {"done"}
    assert rows.loc["mean", "flops_total"] > rows.loc["mean", "flops_linear_layers"] > 0
    assert (tmp_path / "outputs/mine/figures/heatmap.png").exists()
    told = run([str(ROOT / "evaluate.py"), f"run=runs/{rows.loc['mean', 'run']}", "show=2",
                "trust=true"], tmp_path)  # fmt: skip
    assert told.count("prompt ") == 2 and '"answer_accuracy"' in told.splitlines()[-1]


@pytest.mark.parametrize(
    "text, file, name",
    [(README, "tests/models/test_every_model.py", "mean and not running"),
     (CONTRIBUTING, "tests/tasks/test_every_task.py", "parity")],
    ids=["mixer", "task"],
)  # fmt: skip
def test_example_is_held_to_what_ours_keep(text, file, name, tmp_path):
    write_files(text, tmp_path)
    words = ["-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--override-ini=addopts="]
    run([*words, str(ROOT / file), f"--config-dir={tmp_path / 'conf'}", "-k", name], tmp_path)


def test_task_of_contributing_trains(tmp_path):
    write_files(CONTRIBUTING, tmp_path)
    words = "task=parity model=linear model.dim=16 data=quick data.train=300 recipe=quick".split()
    words += ["recipe.steps=3", "logger=none"]
    assert "answers" in run([str(ROOT / "train.py"), "--config-dir=conf", *words], tmp_path)
