"""Times at D90: `<results_dir>/<experiment>/costs.csv`.

    python -m benchmarks costs experiment=tuned

    answer_seconds          seconds per answer at batch 1, mean of 8 prompts
    tokens_per_second       generated tokens per second at batch 64
    training_step_seconds   one update by the cell's recipe, data ready, no validation

Medians of five turns, in CPU seconds of one thread; the models of a task and size take turns.
Generation is plain: `prefill` of the prompt, then greedy `step`s in float32, as many as the correct
chain has tokens, with fresh weights (they do not affect times).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.timing import CPU, UNUSED_FROM, median_seconds, print_rows
from benchmarks.training import trainer_of
from common import UserError, write_text
from experiments.config import CellConfig, cell_from, measured_task, require_trusted
from experiments.d90 import finished, required, settings_of
from experiments.run import initial_model
from experiments.run_folder import provenance
from experiments.table import read_cells, read_table
from models.transformer import Transformer
from plots.costs import BATCH
from tasks.sampling import draw_set
from tasks.task import LABELLED, build_task
from training.data import SequenceTensors
from training.device import Machine, device_name, keep_freed_memory

ANSWERS, REPEATS = 8, 5
TRAINED_ON = 2000  # sequences, for the training step


def main(experiment: str, results_dir: Path = Path("results"), trust: bool = False) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()  # as in training, from the first size on
    folder = results_dir / experiment
    sizes = list(models_by_size(read_table(folder)))
    if not sizes:
        raise UserError(f"{folder}: no model that generates reaches 90 %")
    known, rows = read_cells(folder), list[dict[str, Any]]()
    for cells in tqdm(sizes, unit="size", disable=None):
        configs = []
        for settings in (known[cell]["config"] for cell in cells["cell"]):
            require_trusted(settings, str(folder), trust)
            configs.append(cell_from(settings))
        rows += time_size(cells, configs)
    table = pd.DataFrame(rows)
    write_text(folder / "costs.csv", table.to_csv(index=False))
    print_rows("At D90, CPU seconds of one thread", rows)
    print(f"\nwrote {folder / 'costs.csv'}; to draw it: python -m plots experiment={experiment} "
          f"results_dir={results_dir}")  # fmt: skip


def models_by_size(table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """For each task and size, one cell per model at its D90."""
    rows = finished(table)
    groups = required(rows).dropna(subset="d90")
    groups = groups.assign(dim=groups["d90"])
    keys = [*settings_of(rows), "dim"]
    cells = groups[keys].merge(rows[~rows["format"].isin(LABELLED)], on=keys)
    cells = cells.drop_duplicates(keys)
    together = [key for key in keys if key in ("task", "size", "format") or "task." in key]
    for _, size in cells.groupby(together, sort=False, dropna=False):
        yield size


def time_size(cells: pd.DataFrame, configs: list[CellConfig]) -> list[dict[str, Any]]:
    models = {str(cell): Model(own) for cell, own in zip(cells["cell"], configs, strict=True)}
    task = next(iter(models.values())).task
    drawn = task.draw(0, 0, UNUSED_FROM, max(BATCH, ANSWERS))
    whole = SequenceTensors(drawn.select(slice(BATCH)))
    alone = [SequenceTensors(drawn.select(slice(i, i + 1))) for i in range(ANSWERS)]
    count = int(whole.host_num_targets.sum())

    def timed(action: Callable[[Model], object]) -> dict[str, float]:
        turns = {cell: (lambda model=model: action(model)) for cell, model in models.items()}
        return median_seconds(turns, REPEATS)

    singly = timed(lambda model: [generate(model.net, prompt) for prompt in alone])
    together = timed(lambda model: generate(model.net, whole))
    updates = timed(lambda model: model.update())
    about = provenance()
    return [
        {
            **row[settings_of(cells)], "max_len": task.max_len, "dim": int(row["dim"]),
            "cell": cell, "batch": BATCH, "answer_seconds": singly[cell] / ANSWERS,
            "tokens_per_second": count / together[cell],
            "training_step_seconds": updates[cell], "repeats": REPEATS,
            "commit": about["commit"], "device": device_name(CPU),
            "torch_version": about["torch_version"], "measured_at": about["finished_at"],
        }
        for cell, (_, row) in zip(models, cells.iterrows(), strict=True)
    ]  # fmt: skip


class Model:
    """A cell's model (`net`), its `task`, and `update`, one training step."""

    def __init__(self, config: CellConfig) -> None:
        task = build_task(config.task)
        self.task = measured_task(config, task)
        self.net = initial_model(config, task).eval()
        machine = Machine(device="cpu", compile=False)
        count = min(TRAINED_ON, config.data.train or TRAINED_ON)
        self.update = trainer_of(config, task, draw_set(task, "train", count), machine).step


@torch.inference_mode()
def generate(model: Transformer, prompts: SequenceTensors) -> Tensor:
    """Greedy tokens (B, longest chain); finished rows keep running."""
    lengths = prompts.prompt_lengths  # (B,)
    tokens = prompts.tokens[:, : int(lengths.max())].long()  # (B, T)
    logits, state = model.prefill(tokens, lengths)  # (B, V)
    written = [logits.argmax(-1)]
    for number in range(int(prompts.host_num_targets.max()) - 1):
        positions = (lengths + number).clamp(max=model.max_len - 1)
        written.append(model.step(written[-1], positions, state).argmax(-1))
    return torch.stack(written, 1)
