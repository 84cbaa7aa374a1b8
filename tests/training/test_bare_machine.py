"""GPU machines come without Hydra and W&B: the core must train and evaluate there."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ABSENT = ("hydra", "omegaconf", "wandb", "datasets", "pydantic", "filelock", "yaml", "cloudpickle")
SCRIPT = f"""
import sys
sys.modules.update(dict.fromkeys({ABSENT!r}))  # None: as if not installed
import pathlib, tempfile
import torch
from models.sparse import SparseAttention
from models.transformer import Transformer
from tasks.arithmetic import Arithmetic
from tasks.data import DataSpec, load_or_build
from training.batches import SequenceTensors
from training.evaluation import evaluate
from training.recipe import Recipe
from training.trainer import Trainer
task = Arithmetic(2)
folder = pathlib.Path(tempfile.mkdtemp())
spec = DataSpec(train=200, validation=20, test=20, directory=str(folder / "data"))
data = load_or_build(task, spec, progress=False)
model = Transformer(len(task.vocabulary), task.max_len, 8, 1, 2, SparseAttention)
recipe = Recipe(name="x", learning_rate=1e-2, batch_size=16, steps=4, validate_every=2)
sets = SequenceTensors(data.train), SequenceTensors(data.validation)
Trainer(model, recipe, *sets, 0, folder / "run").fit()
print(evaluate(model, task, data.test).n_test)
"""


def test_tasks_models_and_training_need_neither_hydra_nor_wandb():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "20"
