import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
USE = """
from tasks.kernels import kernel
from words import EOS_ID


@kernel
def last():
    return EOS_ID
"""
DRAW = "from tasks.lis import LIS; print(LIS(5).draw(0, 0, 0, 3).tokens.tolist())"


def copied(folder: Path, *rooms: str) -> Path:
    ignore = shutil.ignore_patterns("__pycache__")
    for room in rooms:
        shutil.copytree(ROOT / room, folder / room, ignore=ignore)
    for name in ("errors.py", "instantiate.py", "kernel_cache.py"):
        shutil.copy(ROOT / name, folder)
    return folder


def printed(folder: Path, script: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", script], text=True, check=True, capture_output=True,
        cwd=folder, env={**os.environ, "PYTHONPATH": str(folder), **environment},
    ).stdout  # fmt: skip


def test_a_change_in_another_file_reaches_the_kernels(tmp_path: Path) -> None:
    """Numba's own cache would go on with the old generator of random numbers."""
    copied(tmp_path, "tasks")

    def draw() -> str:
        return printed(tmp_path, DRAW)

    first = draw()
    assert list((tmp_path / "tasks" / "__pycache__").glob("kernels-*/**/*.nbc"))
    assert draw() == first
    source = tmp_path / "tasks" / "random_numbers.py"
    source.write_text(source.read_text().replace("0x9E3779B97F4A7C15", "0x9E3779B97F4A7C17"))
    assert draw() != first


def test_a_change_in_a_file_without_kernels_reaches_them_too(tmp_path: Path) -> None:
    """They take constants from there, such as the id of the token that ends a sequence."""
    for name, text in (("words.py", "EOS_ID = 1\n"), ("kernels.py", USE)):
        (tmp_path / name).write_text(text)
    shutil.copy(ROOT / tmp_path)
    # Python takes a file of the same second and size for the one it has compiled.
    script, no_bytecode = (
        "from kernels import last; print(last())",
        {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert printed(tmp_path, script, **no_bytecode) == "1\n"
    (tmp_path / "words.py").write_text("EOS_ID = 7\n")
    assert printed(tmp_path, script, **no_bytecode) == "7\n"


def test_an_installation_that_cannot_be_written_caches_in_the_home_folder(tmp_path: Path) -> None:
    """Under a name of its own: numba's way on to the home folder would mix versions up."""
    folder = copied(tmp_path / "installed", "tasks")
    (folder / "tasks" / "__pycache__").touch()  # stands in the way, of root too
    assert printed(folder, DRAW, HOME=str(tmp_path)) == printed(ROOT, DRAW)
    assert list(tmp_path.glob(".cache/cotcost/kernels-*/**/*.nbc"))
    assert not (tmp_path / ".cache" / "numba").exists()


def test_without_any_folder_to_write_to_the_kernels_are_compiled_anew(tmp_path: Path) -> None:
    folder = copied(tmp_path, "tasks", "models")
    for room in ("tasks", "models"):
        (folder / room / "__pycache__").touch()
    environment = {"HOME": os.devnull, "XDG_CACHE_HOME": os.devnull}
    script = f"import models.packed_attention; {DRAW}"
    assert printed(folder, script, **environment) == printed(ROOT, DRAW)


ROUNDED = """
import hashlib
import numpy as np, torch
from models.gelu import Gelu
from models.packed_attention import PackedAttention, bias_shape
from models.packing import Packing
from models.recurrences import PackedRecurrence

torch.set_num_threads(1)
torch.manual_seed(0)
packing = Packing(np.array([5, 85, 100]), 1, 1, 200)
digest = hashlib.sha256()


def note(function, *shapes):
    given = [torch.randn(packing.size, *shape).requires_grad_() for shape in shapes]
    y = function(*given)
    for x in (y, *torch.autograd.grad((y * torch.randn_like(y)).sum(), given)):
        digest.update(x.detach().numpy().tobytes())


bias = torch.zeros(bias_shape(100))
bias[:, 3] = -np.inf
bias.fill_diagonal_(0)
note(lambda x: PackedAttention.apply(x, packing, True, None), (3, 4, 16))
note(lambda x: PackedAttention.apply(x, packing, True, bias), (3, 4, 16))
note(lambda x: PackedAttention.apply(x, packing, False, None), (3, 4, 16))
writes = (2, 4, 8)
note(lambda *qkv: PackedRecurrence.apply(*qkv, None, None, packing), (4, 8), writes, writes)
note(Gelu(), (64,))
print(digest.hexdigest())
"""


def test_the_process_that_compiles_rounds_as_those_that_load_from_the_cache(tmp_path: Path) -> None:
    """Else the first training on a machine would give other weights than its repetition."""
    folder = copied(tmp_path, "models")
    shutil.copy(ROOT / "files.py", folder)
    compiled = printed(folder, ROUNDED)
    assert list((folder / "models" / "__pycache__").glob("kernels-*/**/*.nbc"))
    assert printed(folder, ROUNDED) == compiled
    tiles = folder / "models" / "tiles.py"
    tiles.write_text(tiles.read_text().replace("Float(1 / 24)", "Float(1 / 25)"))
    assert printed(folder, ROUNDED) != compiled  # what is inlined counts as its callers do
