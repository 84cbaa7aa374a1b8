"""Hydra's compose, usable inside and outside of a Hydra application."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

CONF_DIR = Path(__file__).resolve().parent.parent / "conf"


@contextlib.contextmanager
def config_search_path(conf_dir: Path | None = None) -> Iterator[None]:
    """Make ``conf/`` the search path, unless a running application has already set one.

    Inside ``train.py`` or ``sweep.py`` the application's own path is kept, with whatever
    ``--config-dir`` added to it.
    """
    if GlobalHydra.instance().is_initialized():
        yield
        return
    with initialize_config_dir(str(conf_dir or CONF_DIR), version_base="1.3"):
        yield


def plain(config: Any) -> dict[str, Any]:
    """Return ``config`` as plain, resolved Python data; `???` left in it is an error."""
    content = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


def compose_plain(config_name: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the composed configuration as plain, resolved Python data."""
    with config_search_path():
        return plain(compose(config_name, overrides=list(overrides)))
