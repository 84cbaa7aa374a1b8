"""The process that compiles the kernels rounds as those that load them from the cache do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROUNDED = """
import hashlib
import numpy as np, torch
from models.packing import PackedAttention, bias_shape
from models.packing import PackedRecurrence
from models.transformer import Gelu
from models.packing import Packing

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


def printed(folder):
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-c", ROUNDED]
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_the_first_process_rounds_as_all_later_ones(tmp_path):
    """Else the first training on a machine would give other weights than its repetition."""
    for name in ("models", "tasks"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "common.py", tmp_path)
    compiled = printed(tmp_path)
    assert list((tmp_path / "models").rglob("*.nbc"))
    assert printed(tmp_path) == compiled
    kernels = tmp_path / "models" / "kernels.py"
    kernels.write_text(kernels.read_text().replace("Float(1 / 24)", "Float(1 / 25)"))
    assert printed(tmp_path) != compiled  # what is inlined counts as its callers do
