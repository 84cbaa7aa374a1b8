import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_change_in_another_file_reaches_the_kernels(tmp_path: Path) -> None:
    """Numba's own cache would go on with the old generator of random numbers."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tasks", tmp_path / "tasks", ignore=ignore)
    for name in ("errors.py", "instantiate.py"):
        shutil.copy(ROOT / name, tmp_path)

    def draw() -> str:
        script = "from tasks.lis import LIS; print(LIS(5).draw(0, 0, 0, 3).tokens.tolist())"
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            [sys.executable, "-c", script], text=True, check=True, capture_output=True,
            cwd=tmp_path, env=environment,
        ).stdout  # fmt: skip

    first = draw()
    assert list((tmp_path / "tasks" / "__pycache__").glob("kernels-*/**/*.nbc"))
    assert draw() == first
    source = tmp_path / "tasks" / "random_numbers.py"
    source.write_text(source.read_text().replace("0x9E3779B97F4A7C15", "0x9E3779B97F4A7C17"))
    assert draw() != first
