"""A machine without Hydra and its kin, made by hiding them from a process and its children."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ABSENT = (
    "hydra hydra_plugins omegaconf wandb datasets pydantic yaml cloudpickle joblib submitit".split()
)


def run_bare(folder: Path, module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run ``python -m benchmarks.gpu.MODULE`` where importing what is absent fails."""
    hooks = folder / "hooks"
    hooks.mkdir(exist_ok=True)
    lines = f"import sys\nsys.modules.update(dict.fromkeys({ABSENT!r}))\n"  # None: not installed
    (hooks / "sitecustomize.py").write_text(lines)
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.gpu.{module}", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(hooks), "OMP_NUM_THREADS": "1"},
    )
