"""How much of a device training uses.

    python -m benchmarks gpu                                  # device=cuda
    python -m benchmarks gpu compile=false,true dims=32,64 lengths=87 recipes=fast

Tokens/s of the trainer's whole update, and its TFLOP/s over those of one large matrix product in
the same precision. All sequences are L tokens long.
"""

import itertools
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from benchmarks.timing import RECORDS, median_seconds, print_rows, seconds_of, write_record
from benchmarks.training import config_of, training_step
from experiments.config import CellConfig
from experiments.run import initial_model
from models.flops import training_step_flops
from tasks.task import build_task
from training.device import Machine, resolve_device

MATMUL = {"cuda": (8192, 30), "cpu": (1024, 10)}  # size of the product, repeats
WARM_UP = 3


def main(
    device: str = "cuda",
    models: tuple[str, ...] = ("standard", "sparse", "linear"),
    dims: tuple[int, ...] = (32, 64, 128, 256, 512, 1024),
    lengths: tuple[int, ...] = (87, 221, 355, 505),
    recipes: tuple[str, ...] = ("fast", "paper"),
    precisions: tuple[str, ...] = ("float32", "bfloat16"),
    compile: tuple[bool, ...] = (False,),
    batch: int = 64,
    steps: int = 30,
    record: Path = RECORDS / "gpu.json",
) -> None:
    torch.set_num_threads(1)
    place = resolve_device(device)
    ceiling = {precision: matmul_tflops(precision, place) for precision in precisions}
    rows = []
    axes = itertools.product(recipes, precisions, compile, dims, lengths, models)
    for recipe, precision, compile_mode, dim, length, model in tqdm(list(axes), disable=None):
        config = config_of(  # all sequences of this task have the same length
            f"task=copy task.size={(length - 1) // 2} model={model} model.dim={dim} recipe={recipe}"
            f" recipe.precision={precision} recipe.batch_size={batch}"
        )
        row = measure(config, Machine(device=device, compile=compile_mode), steps)
        share = row["tflops"] / ceiling[precision]
        rows.append({"compile": compile_mode, **row, "share_of_ceiling": share})
    print_rows("One matrix product, TFLOP/s", [ceiling])
    print_rows("Training", rows)
    write_record(record, {"batch": batch, "matmul_tflops": ceiling, "rows": rows}, place)


def matmul_tflops(precision: str, device: torch.device) -> float:
    size, repeats = MATMUL[device.type]
    a, b = torch.randn(2, size, size, device=device).to(getattr(torch, precision))
    seconds = median_seconds({"": lambda: a @ b}, repeats, device, WARM_UP)[""]
    return 2 * size**3 / seconds / 1e12


def measure(config: CellConfig, machine: Machine, steps: int) -> dict[str, Any]:
    task, batch = build_task(config.task), config.recipe.batch_size
    step = training_step(config, task, task.draw(0, 2, 0, 4 * batch), machine)

    def run(count: int) -> None:
        for _ in range(count):
            step()

    run(WARM_UP)
    seconds = seconds_of(lambda: run(steps), resolve_device(machine.device)) / steps
    model = config.model
    flops = training_step_flops(initial_model(config, task).flops(task.max_len))
    return {
        "recipe": config.recipe.name, "precision": config.recipe.precision, "model": model.name,
        "dim": model.dim, "length": task.max_len, "seconds_per_step": seconds,
        "tokens_per_second": batch * task.max_len / seconds,
        "tflops": batch * flops / seconds / 1e12,
    }  # fmt: skip
