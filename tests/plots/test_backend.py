import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_backend_that_does_not_exist_is_not_asked_for() -> None:
    """Matplotlib refuses to be imported then; figures here are drawn without a backend."""
    script = "import plots.style, matplotlib; print(matplotlib.get_backend())"
    subprocess.run(
        [sys.executable, "-c", script], check=True, cwd=ROOT,
        env={**os.environ, "MPLBACKEND": "nonsense"},
    )  # fmt: skip
