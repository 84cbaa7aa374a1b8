"""Publishing a stored data set on the Hugging Face Hub: staged as Parquet, looked at, uploaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from common import RunError, UserError
from tasks.card import card
from tasks.store import quiet_datasets
from tasks.task import SPLITS, Task


def require_repo_name(repo: str) -> None:
    """Raise `UserError` for what the Hub takes for no name of a data set."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UserError(f"repo={repo}: {' '.join(str(error).split())}") from None


def stage(task: Task, stored: Path, repo: str, folder: Path) -> list[Path]:
    """Write what is published into ``folder``; return the files.

    ``stored`` is a folder of the store, intact.
    """
    (folder / "data").mkdir(parents=True)
    meta = json.loads((stored / "meta.json").read_text(encoding="utf-8"))
    with quiet_datasets() as datasets:
        for split in SPLITS:
            if meta["sequences"][split]:
                data = datasets.Dataset.load_from_disk(str(stored / split))
                data.to_parquet(folder / "data" / f"{split}.parquet")
    for name in ("vocabulary.json", "meta.json"):
        shutil.copy(stored / name, folder)
    (folder / "README.md").write_text(card(task, meta, repo), encoding="utf-8")
    return sorted(path for path in folder.rglob("*") if path.is_file())


def upload(folder: Path, repo: str, private: bool, api: Any = None) -> str:
    """Upload a staged folder in one commit; return the address.

    ``api`` stands in for `huggingface_hub.HfApi`.  Raises `UserError` for a repository that holds
    something else, `RunError` when the Hub cannot be reached or refuses.
    """
    import huggingface_hub

    api = api or huggingface_hub.HfApi()
    try:
        api.create_repo(repo, repo_type="dataset", private=private, exist_ok=True)
        there = set(api.list_repo_files(repo, repo_type="dataset")) - {".gitattributes"}
        if there and "meta.json" not in there:
            raise UserError(f"repo={repo}: holds files of another origin; choose a new name")
        done = api.upload_folder(
            repo_id=repo,
            repo_type="dataset",
            folder_path=str(folder),
            commit_message="Publish a cotcost data set",
        )
    except UserError:
        raise
    except Exception as error:  # the client raises its HTTP library's errors too
        reason = " ".join(str(error).split())[:300]
        raise RunError(f"repo={repo}: not published: {type(error).__name__}: {reason}") from None
    return str(getattr(done, "commit_url", done))
