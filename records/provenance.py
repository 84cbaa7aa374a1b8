"""Where a number comes from: commit, tree, versions, machine."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import json
import platform
import socket
import subprocess
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
# What decides no result; any other file counts as code.
NOT_CODE = "docs results tests plots benchmarks .ci .gitignore *.md *.cff LICENSE Makefile".split()


@functools.lru_cache(maxsize=1)
def source() -> dict[str, Any]:
    """Return commit and whether the code differs from it; empty where neither can be known.

    A wheel installed from a repository bears its commit.  A folder of somebody's own repository
    that holds the installation says nothing about this code.
    """
    if not (ROOT / ".git").exists():
        return {"commit": _installed_from(), "tree_dirty": None}
    commit = _git("rev-parse", "--short=12", "HEAD")
    return {"commit": commit, "tree_dirty": _differs()}


def _differs() -> bool | None:
    """Tell whether a committed file that may be code is changed, or a new one lies beside them."""
    others = [f":(exclude,top){name}" for name in NOT_CODE]
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":(top)", *others)
    new = _git("ls-files", "--others", "--exclude-standard", "--", "*.py", "conf", *others)
    return None if changed is None or new is None else bool(changed or new)


def machine(device: torch.device, processes: int = 1) -> dict[str, Any]:
    """Return device name (and how many processes trained together), host and torch version."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "device": f"{device.type}: {name}" + (f", {processes} processes" * (processes > 1)),
        "hostname": socket.gethostname(),
        "torch_version": torch.__version__,
    }


def now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


@functools.lru_cache(maxsize=1)
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _installed_from() -> str | None:
    """Return the commit that pip notes when it installs from a version-control system."""
    try:
        text = importlib.metadata.distribution("cotcost").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    commit = json.loads(text or "{}").get("vcs_info", {}).get("commit_id")
    return commit and commit[:12]


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
