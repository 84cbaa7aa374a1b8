"""A long generation in parts kept on disk, so that one cut off goes on where it was."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import numpy as np
import torch

from common import write_atomically
from evaluation.argmax import LARGEST_BATCH, Memory, longest_sequence
from evaluation.generate import Generation, Progress, generate
from models.transformer import Transformer
from tasks.task import SequenceSet

# Sequences of a part.  A part generates token by token, which on a GPU takes as long for one
# sequence as for a batch: few parts, of full batches.
PART = {"cpu": 10_000, "cuda": 4 * LARGEST_BATCH["cuda"]}


def part_size(device: torch.device | str) -> int:
    """Return how many sequences are evaluated before a part is kept."""
    return PART.get(torch.device(device).type, PART["cpu"])


def generate_in_parts(
    model: Transformer,
    sequences: SequenceSet,
    memory_mb: Memory,
    device: torch.device | str,
    progress: Progress,
    folder: Path,
) -> tuple[Generation, float]:
    """Return what `generate` returns and the seconds it took, over all calls.

    Each part of `part_size` sequences is kept in ``folder``, under a name of these weights and
    sequences.  The caller deletes the folder.  Raises what `generate` raises.
    """
    longest_sequence(model, sequences)  # a sequence too long is refused before the first part
    name, size, total = _digest(sequences, model), part_size(device), len(sequences)
    parts = []
    for start in range(0, total, size):
        path = folder / f"{name}-{start}.npz"
        if not path.exists():

            def report(done: int, _: int, start: int = start) -> None:
                progress(start + done, total)

            begun = time.perf_counter()
            some = sequences.select(slice(start, start + size))
            part = vars(generate(model, some, memory_mb, device, report))
            _write(path, {**part, "seconds": time.perf_counter() - begun})
        with np.load(path) as held:
            parts.append(dict(held))
    arrays = ("tokens", "lengths", "first_mistake")
    whole = Generation(
        **{key: np.concatenate([part[key] for part in parts]) for key in arrays},
        certified=sum(int(part["certified"]) for part in parts),
        close_calls=sum(int(part["close_calls"]) for part in parts),
        tolerance=max(float(part["tolerance"]) for part in parts),
    )
    return whole, sum(float(part["seconds"]) for part in parts)


def _digest(sequences: SequenceSet, model: Transformer) -> str:
    weights = [tensor.detach().cpu().numpy() for tensor in model.state_dict().values()]
    digest = hashlib.sha256()
    for array in (sequences.tokens, sequences.lengths, *weights):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def _write(path: Path, values: dict[str, np.ndarray | float]) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **values)  # type: ignore[arg-type]

    write_atomically(path, write)
