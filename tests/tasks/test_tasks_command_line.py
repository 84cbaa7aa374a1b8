"""`python -m tasks`: what it prints, its exit status, and a task from outside."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import datasets
import huggingface_hub
import pytest

from tasks.__main__ import main
from tasks.lis import LIS

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests" / "oracles" / "samples"

OUTSIDE_TASK = """
import random

from tasks.task import Task


class Parity(Task):
    name = "parity"

    @property
    def own_tokens(self):
        return ["<sep>", "0", "1"]

    @property
    def max_len(self):
        return self.size + 2 + (self.size + 1 if self.format == "cot" else 0)

    def sample_prompt(self, rng: random.Random, size):
        return [rng.choice("01") for _ in range(size)] + ["<sep>"]

    def solve(self, prompt):
        bits = [int(bit) for bit in prompt[:-1]]
        parities = [str(sum(bits[: i + 1]) % 2) for i in range(len(bits))]
        return [*parities, "<sep>"], parities[-1:]
"""


@pytest.mark.parametrize("name", ["arithmetic", "lis", "ed", "ed_local", "word"])
@pytest.mark.parametrize("options", [[], ["--format", "direct"], ["--split", "test"]], ids=" ".join)
def test_what_is_sampled_passes_the_check(name: str, options: list[str], tmp_path, capsys) -> None:
    sampling = ["sample", name, "--size", "5", "--count", "30", "--seed", "2", *options]
    assert main(sampling) == 0
    lines = capsys.readouterr().out
    assert len(set(lines.splitlines())) == 30
    assert main(sampling) == 0
    assert capsys.readouterr().out == lines
    path = tmp_path / "lines.txt"
    path.write_text(lines)
    own = [] if "--split" in options else options
    assert main(["check", name, "--size", "5", *own, str(path)]) == 0
    assert capsys.readouterr().out == "30 lines, 30 valid, 0 invalid\n"


@pytest.mark.parametrize("name", ["lis", "word"])
def test_tagged_sequences_are_printed_with_their_labels(name: str, tmp_path, capsys) -> None:
    call = [name, "--size", "6", "--format", "tagged"]
    assert main(["sample", *call, "--count", "20"]) == 0
    lines = capsys.readouterr().out
    assert [len(line.split("<sep>")[1].split()) for line in lines.splitlines()] == [6] * 20
    path = tmp_path / "lines.txt"
    path.write_text(lines)
    assert main(["check", *call, str(path)]) == 0


def test_check_names_line_and_reason(tmp_path: Path, capsys) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("1 + 2 = 3 \n1 + 2 = 4 \n\n1 * 2 + 3 * 4 = 1 * 2 + 1 = 2 + 1 = 3\n")
    assert main(["check", "arithmetic", "--size", "3", str(path)]) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("line 2: chain step 1: '4' is not one legal reduction")
    assert last == "3 lines, 2 valid, 1 invalid"
    assert main(["check", "arithmetic", "--size", "3", "order=leftmost", str(path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "3 lines, 1 valid, 2 invalid"


@pytest.mark.parametrize("content", ["", "\n \n", "\ufeff"])
def test_a_file_without_a_sequence_does_not_pass(content: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "lines.txt"
    path.write_text(content, encoding="utf-8")
    assert main(["check", "arithmetic", "--size", "3", str(path)]) == 2
    assert capsys.readouterr().err == f"error: {path}: holds no sequence\n"


def test_check_reads_a_pipe(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tasks", "check", "arithmetic", "--size", "3", "/dev/stdin"],
        cwd=Path(__file__).parents[2],
        input="1 + 2 = 3\n1 + 2 = 4\n",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1] == "2 lines, 1 valid, 1 invalid"


def test_training_split_is_the_default_and_mixes_sizes(capsys) -> None:
    main(["sample", "arithmetic", "--size", "3", "--count", "60"])
    lines = capsys.readouterr().out.splitlines()
    counts = [sum(t in "+-*/" for t in line.split(" = ")[0].split()) for line in lines]
    assert [counts.count(k) for k in (1, 2, 3)] == [10, 20, 30]
    assert counts != sorted(counts)


def test_build_says_where_and_what(tmp_path: Path, capsys) -> None:
    call = ["build", "lis", "--size", "5", "--train", "100", "--test", "10", "--dir", str(tmp_path)]
    assert main(call) == 0
    first = capsys.readouterr().out
    assert re.search(r"samples/s +[\d,]+\n", first)
    path, fingerprint = (line.split()[1] for line in first.splitlines()[:2])
    assert Path(path).parent == tmp_path
    assert re.fullmatch("[0-9a-f]{64}", fingerprint)
    assert main(call) == 0
    again = capsys.readouterr().out
    assert again == re.sub(r"samples/s +.*", "samples/s    already there", first)


def test_build_all_makes_the_sixteen_sets_of_the_paper(tmp_path: Path, capsys) -> None:
    assert main(["build-all", "--scale", "0.0005", "--dir", str(tmp_path)]) == 0
    made = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    ed = [["6"], ["12"], ["16"], ["20"]]
    sizes = {"arithmetic": ["6", "10", "13", "16"], "lis": ["40", "110", "175", "250"]}
    sizes |= {name: [size for (size,) in ed] for name in ("ed", "ed_local")}
    assert made == [[name, size] for name, own in sizes.items() for size in own]


def test_locality_prints_a_row_a_size(capsys) -> None:
    assert main(["locality", "lis", "ed", "--size", "8", "--size", "16"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0][:4] == ["task", "size", "L", "m"]
    assert [row[:3] for row in rows[1:]] == [
        ["lis", "8", "19"], ["lis", "16", "35"], ["ed", "8", "110"], ["ed", "16", "342"],
    ]  # fmt: skip
    assert [len(row) for row in rows[1:]] == [7, 7, 9, 9]
    assert 0 < float(rows[4][7]) < float(rows[4][8]) <= 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("", "command"),
        ("smaple lis", "smaple"),
        ("sample", "TASK"),
        ("sample liss --size 3", "did you mean lis?"),
        ("sample no.such.Task --size 3", "no module 'no'"),
        ("sample os.system --size 3", "_target_=os.system: is not a subclass of tasks.task.Task"),
        ("sample tasks.lis.LIS", "missing a required argument: 'size'"),
        ("sample lis --size x", "'x'"),
        ("sample lis --size 0", "size=0 must be at least 1"),
        ("sample lis --size 5 --count -1", "train=-1"),
        ("sample lis --size 5 --split dev", "--split"),
        ("sample lis --size 5 --wrong", "--wrong"),
        ("sample lis --size 5 order=growth", "argument 'order'; LIS takes size, format, number_"),
        ("sample lis --size 5 capacity=4", "capacity=4 must be at least size=5"),
        ("sample lis --size 50000", "ids have 16 bits"),
        ("sample ed --size 3 capacity=5000", "size=5000 has sequences of up to 25,025,006 tokens"),
        ("sample lis --size 5 --count 9999999999", "train=9999999999"),
        ("sample lis --size 5 number_range=[", "number_range"),
        ("sample word --size 8 monoid=Q8", "monoid='Q8' is unknown: there are S3, A4"),
        ("sample arithmetic --size 1 --count 1000", "reached 473"),
        ("sample lis --size 5 --config-dir /no/such", "--config-dir"),
        ("check lis --size 5", "FILE"),
        ("check lis --size 5 /no/such", "/no/such"),
        ("build lis --size 5 --train 5", "--test"),
        ("build lis --size 5 --train 5 --test 5 --dir /proc/no", "/proc/no"),
        ("build-all order=growth", "key=value"),
        ("push lis --size 5 --train 5 --test 5", "--repo"),
    ],
)
def test_a_bad_call_is_one_line_and_status_2(call: str, said: str, capsys) -> None:
    assert main(call.split()) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert said in error


def test_push_is_dry_until_upload_is_asked_for(tmp_path, monkeypatch, capsys) -> None:
    """What would be published opens as a `DatasetDict` whose rows the vocabulary decodes."""
    uploads = []

    def push_to_hub(published, repo, private):
        uploads.append((repo, private))
        published.save_to_disk(tmp_path / repo)

    def upload_folder(self, *, repo_id, repo_type, folder_path, allow_patterns):
        uploads.append((repo_id, repo_type, allow_patterns))
        shutil.copy(folder_path / "vocabulary.json", tmp_path / repo_id)
        return f"https://hub/{repo_id}"

    monkeypatch.setattr(datasets.DatasetDict, "push_to_hub", push_to_hub)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    counts = ["--train", "60", "--test", "20", "--dir", str(tmp_path)]
    call = ["push", "lis", "--size", "5", *counts, "repo=me/lis-5"]
    assert main(call) == 0
    printed = capsys.readouterr().out
    assert "num_rows: 60" in printed
    assert printed.splitlines()[-1].startswith("dry run: nothing was uploaded")
    assert not uploads
    assert main([*call, "--upload", "--private"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("https://hub/me/lis-5")
    assert uploads == [("me/lis-5", True), ("me/lis-5", "dataset", "*.json")]
    opened = datasets.load_from_disk(str(tmp_path / "me/lis-5"))
    assert {split: len(data) for split, data in opened.items()} == {"train": 60, "test": 20}
    words = json.loads((tmp_path / "me/lis-5" / "vocabulary.json").read_text())
    for row in opened["test"]:
        tokens = [words[i] for i in row["tokens"][: row["lengths"] - 1]]
        assert LIS(5).check(tokens) is None
        assert tokens[row["prompt_lengths"] - 1] == "<sep>"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "conf" / "task").mkdir(parents=True)
    (tmp_path / "parity_task.py").write_text(OUTSIDE_TASK)
    yaml = "name: parity\n_target_: parity_task.Parity\nsize: 8\n"
    (tmp_path / "conf" / "task" / "parity.yaml").write_text(yaml)
    return tmp_path


def outside_call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tasks", *arguments], cwd=folder, text=True, check=False,
        capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_a_task_from_outside_needs_one_file_and_one_yaml(outside: Path) -> None:
    sampled = outside_call(outside, "sample", "parity", "--count", "5")
    assert len(sampled.stdout.splitlines()) == 5, sampled.stderr
    (outside / "lines.txt").write_text(sampled.stdout)
    checked = outside_call(outside, "check", "parity", "lines.txt")
    assert checked.stdout == "5 lines, 5 valid, 0 invalid\n"
    build = ["build", "parity", "--train", "100", "--test", "50"]
    built = outside_call(outside, *build)
    assert built.returncode == 0, built.stderr
    with (outside / "parity_task.py").open("a") as source:
        source.write("# an edit makes another data set\n")
    edited = outside_call(outside, *build)
    assert edited.stdout.splitlines()[0] != built.stdout.splitlines()[0]
    asked = outside_call(outside, "sample", "parity", "order=growth", "--config-dir", "conf")
    assert asked.returncode == 2
    assert "'order'; Parity takes size, format, capacity" in asked.stderr
    many = outside_call(outside, "build", "parity", "--train", "300", "--test", "50")
    assert many.returncode == 2
    assert "reached 206" in many.stderr  # 256 prompts of 8 bits, 50 of them in the test set
