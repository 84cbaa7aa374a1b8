"""A stored data set as others open it, and as it is published."""

import json
import shutil
from pathlib import Path

import datasets
import numpy as np
import pytest
from tasks_program import main

from common import RunError, UserError
from tasks import hub, store
from tasks.data import DataSpec, load_or_build
from tasks.lis import LIS

TASK = LIS(5)


@pytest.fixture
def sets(tmp_path):
    return load_or_build(TASK, DataSpec(60, 10, 20, directory=str(tmp_path)), progress=False)


def decoded(row, words):
    return [words[i] for i in row["tokens"][: row["lengths"] - 1]]


def test_a_stored_set_opens_as_a_dataset_dict_with_its_vocabulary(sets):
    opened = datasets.load_from_disk(str(sets.path))
    assert isinstance(opened, datasets.DatasetDict)
    assert {split: len(data) for split, data in opened.items()} == {
        "train": 60, "validation": 10, "test": 20,
    }  # fmt: skip
    assert np.array_equal(np.array(opened["test"]["tokens"]), sets.test.tokens)
    words = json.loads((sets.path / "vocabulary.json").read_text())
    for row in opened["test"]:
        assert TASK.check(decoded(row, words)) is None
        assert decoded(row, words)[: row["prompt_lengths"]][-1] == "<sep>"


def test_the_card_says_what_and_whence_and_its_front_matter_opens_the_folder(sets, tmp_path):
    card = (sets.path / "README.md").read_text()
    assert f"`{sets.fingerprint}`" in card and "| train | 60 |" in card and "tasks.lis.LIS" in card
    opened = datasets.load_dataset(str(sets.path), cache_dir=str(tmp_path / "cache"))
    assert {split: len(data) for split, data in opened.items()} == {
        "train": 60, "validation": 10, "test": 20,
    }  # fmt: skip


def test_a_set_stored_without_these_files_stays_and_gets_them(sets):
    written = ["README.md", "vocabulary.json", "dataset_dict.json"]
    for name in written:
        (sets.path / name).unlink()
    before = (sets.path / "meta.json").stat().st_mtime_ns
    spec = DataSpec(60, 10, 20, directory=str(sets.path.parent))
    again = load_or_build(TASK, spec, progress=False)
    assert again.samples_per_second is None and again.fingerprint == sets.fingerprint
    assert (sets.path / "meta.json").stat().st_mtime_ns == before
    assert all((sets.path / name).exists() for name in written)
    assert store.load(sets.path)[1] == sets.fingerprint


class StandIn:
    """The three calls of `huggingface_hub.HfApi`, which keep what they are given."""

    def __init__(self, folder: Path, files=(), failure=None):
        self.folder, self.files, self.failure, self.made = folder, files, failure, []

    def create_repo(self, repo_id, *, repo_type, private, exist_ok):
        self.made.append((repo_id, repo_type, private))

    def list_repo_files(self, repo_id, *, repo_type):
        return list(self.files)

    def upload_folder(self, *, repo_id, repo_type, folder_path, commit_message):
        if self.failure:
            raise self.failure
        shutil.copytree(folder_path, self.folder / repo_id)
        return f"https://hub/{repo_id}"


def push(directory, *words):
    counts = ["--train", "60", "--test", "20", "--dir", str(directory)]
    return main(["push", "lis", "--size", "5", *counts, *words])


def test_push_is_dry_until_it_is_told_otherwise(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: pytest.fail("a dry run called the Hub"))
    assert push(tmp_path, "repo=me/lis-5") == 0
    said = capsys.readouterr().out
    assert "data/train.parquet" in said and "README.md" in said
    assert said.splitlines()[-1].startswith("dry run: nothing was uploaded")
    assert push(tmp_path, "--repo", "not a name") == 2
    assert capsys.readouterr().err.startswith("error: repo=not a name: ")


def test_what_is_pushed_opens_with_load_dataset(tmp_path, monkeypatch, capsys):
    api = StandIn(tmp_path / "hub")
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: api)
    assert push(tmp_path, "repo=me/lis-5", "--upload", "--private") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("https://hub/me/lis-5")
    assert api.made == [("me/lis-5", "dataset", True)]
    copy = tmp_path / "hub/me/lis-5"
    opened = datasets.load_dataset(str(copy), cache_dir=str(tmp_path / "cache"))
    assert {split: len(data) for split, data in opened.items()} == {"train": 60, "test": 20}
    words = json.loads((copy / "vocabulary.json").read_text())
    assert all(TASK.check(decoded(row, words)) is None for row in opened["test"])
    assert 'load_dataset("me/lis-5")' in (copy / "README.md").read_text()


def test_a_repository_of_something_else_is_left_alone(tmp_path):
    api = StandIn(tmp_path, files=[".gitattributes", "README.md", "model.bin"])
    with pytest.raises(UserError, match="files of another origin"):
        hub.upload(tmp_path, "me/model", private=False, api=api)
    assert not (tmp_path / "me").exists()


def test_a_hub_that_refuses_is_one_line(tmp_path):
    api = StandIn(tmp_path, failure=ValueError("401\nUnauthorized"))
    with pytest.raises(RunError, match="repo=me/x: not published: ValueError: 401 Unauthorized"):
        hub.upload(tmp_path, "me/x", private=False, api=api)
