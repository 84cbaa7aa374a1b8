"""`python -m tasks`: output and exit status."""

import json
import re
import shutil
from pathlib import Path

import datasets
import huggingface_hub
import pytest

from common import run_command
from tasks.__main__ import main
from tasks.lis import LIS


def error_of(words, capsys) -> str:
    """The one line that an invalid call prints."""
    with pytest.raises(SystemExit) as ended:
        run_command(lambda: main(words))
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


def test_build_prints_path_and_fingerprint(tmp_path: Path, capsys) -> None:
    call = f"build lis --size 5 --train 100 --test 10 --dir {tmp_path}".split()
    assert main(call) == 0
    first = capsys.readouterr().out
    assert re.search(r"samples/s +[\d,]+\n", first)
    path, fingerprint = (line.split()[1] for line in first.splitlines()[:2])
    assert Path(path).parent == tmp_path
    assert re.fullmatch("[0-9a-f]{64}", fingerprint)
    assert main(call) == 0
    again = capsys.readouterr().out
    assert again == re.sub(r"samples/s +.*", "samples/s    already there", first)


@pytest.mark.parametrize(
    ("call", "said"),
    [("", "command"), ("sample", "TASK"), ("sample liss --size 3", "Could not find 'task/liss'"),
     ("sample no.such.Task --size 3", "no.such.Task: not found"),
     ("sample tasks.lis.LIS", "task.size: Field required"),
     ("sample lis --size 5 --wrong", "--wrong"), ("sample lis --size 50000", "ids have 16 bits"),
     ("sample lis --size 5 order=growth", "task.order='growth': unknown; the keys are size"),
     ("sample ed --size 3 capacity=5000", "size=5000 has sequences of 25,025,006 tokens"),
     ("sample lis --size 5 number_range=[", "number_range"),
     ("build lis --size 5 --train 5", "--test"),
     ("build lis --size 5 --train 5 --test 5 --dir Makefile", "Makefile: ")],
)  # fmt: skip
def test_bad_call_gives_a_one_line_error_and_status_2(call: str, said: str, capsys) -> None:
    assert said in error_of(call.split(), capsys)


def test_task_yaml_of_another_folder(tmp_path, capsys) -> None:
    """It may build on one of ours; if invalid, the error names it."""
    (tmp_path / "task").mkdir()
    own = tmp_path / "task" / "mine.yaml"
    own.write_text("defaults: [lis]\nnumber_range: 12")
    words = ["sample", "mine", "--size", "5", "--config-dir", str(tmp_path)]
    assert main(words) == 0
    prompts = [line.split()[:5] for line in capsys.readouterr().out.splitlines()]
    assert max(int(number) for prompt in prompts for number in prompt) < 12
    own.write_text("size: [")
    assert "mine.yaml" in error_of(words, capsys)


def test_push_is_a_dry_run_without_upload(tmp_path, monkeypatch, capsys) -> None:
    """The published data loads as a `DatasetDict`, and its vocabulary decodes the rows."""
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
    call = f"push lis --size 5 --train 60 --test 20 --repo me/lis-5 --dir {tmp_path}".split()
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
