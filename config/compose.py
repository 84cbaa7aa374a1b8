"""Hydra's compose, usable inside and outside of a Hydra application."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from common import UserError

CONF_DIR = Path(__file__).resolve().parent.parent / "conf"


_added: list[Path] = []  # folders of configurations beside our own


@contextlib.contextmanager
def configurations_of(config_dir: str | None) -> Iterator[None]:
    """Let ``config_dir`` add to ``conf/``, as ``--config-dir`` does for a Hydra application.

    Raises `UserError` when there is no such folder.
    """
    if config_dir is None:
        yield
        return
    if not Path(config_dir).is_dir():
        raise UserError(f"--config-dir={config_dir}: no such folder")
    _added.append(Path(config_dir).absolute())
    try:
        yield
    finally:
        _added.pop()


def config_folders(group: str) -> list[Path]:
    """Return the folders of a config group: ours, then what `configurations_of` added."""
    return [folder / group for folder in (CONF_DIR, *_added)]


def config_dir_words() -> list[str]:
    """Return the ``--config-dir`` of this process, which a command that does the same must have."""
    folders = list(_added)
    if GlobalHydra.instance().is_initialized():
        loader = GlobalHydra.instance().config_loader()
        paths = loader.get_search_path().get_path()
        given = [item.path for item in paths if item.provider == "command-line"]
        folders += [Path(path.removeprefix("file://")) for path in given]
    here = Path.cwd()
    shown = [path.relative_to(here) if path.is_relative_to(here) else path for path in folders]
    return [f"--config-dir={path}" for path in dict.fromkeys(shown)]


@contextlib.contextmanager
def config_search_path() -> Iterator[None]:
    """Make ``conf/`` the search path, unless a running application has already set one.

    Inside ``train.py`` or ``sweep.py`` the application's own path is kept, with whatever
    ``--config-dir`` added to it.
    """
    if GlobalHydra.instance().is_initialized():
        yield
        return
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        yield


def plain(config: Any) -> dict[str, Any]:
    """Return ``config`` as plain, resolved Python data; `???` left in it is an error."""
    content = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


def compose_plain(config_name: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the composed configuration as plain, resolved Python data."""
    with config_search_path():
        beside = ",".join(f"file://{folder}" for folder in _added)
        path = [f"hydra.searchpath=[{beside}]"] if beside else []
        return plain(compose(config_name, overrides=[*overrides, *path]))
