"""A long generation in parts kept on disk, so that one cut off goes on where it was."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from common import write_atomically
from evaluation.generate import LARGEST_BATCH, Generation, Progress, generate, longest_sequence
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
    memory_mb: float | Literal["auto"],
    device: torch.device | str,
    progress: Progress,
    folder: Path,
) -> tuple[Generation, float]:
    """Return what `generate` returns and the seconds it took, over all calls.

    Each part of `part_size` sequences is kept in ``folder``, under a name of these weights and
    sequences.  The caller deletes the folder.  Raises what `generate` raises.
    """
    longest_sequence(model, sequences)  # a sequence too long is refused before the first part
    name = _digest(sequences, model)
    parts, seconds, size = [], 0.0, part_size(device)
    for start in range(0, len(sequences), size):
        path = folder / f"{name}-{start}.npz"
        if not path.exists():
            begun = time.perf_counter()
            part = generate(
                model,
                sequences.select(slice(start, start + size)),
                memory_mb,
                device,
                lambda done, _, start=start: progress(start + done, len(sequences)),  # type: ignore[misc]
            )
            _write(path, {**vars(part), "seconds": time.perf_counter() - begun})
        with np.load(path) as held:
            values = {key: held[key] if held[key].ndim else held[key].item() for key in held}
        seconds += values.pop("seconds")
        parts.append(Generation(**values))
    return _joined(parts), seconds


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


def _joined(parts: list[Generation]) -> Generation:
    return Generation(
        tokens=np.concatenate([part.tokens for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
        first_mistake=np.concatenate([part.first_mistake for part in parts]),
        certified=sum(part.certified for part in parts),
        close_calls=sum(part.close_calls for part in parts),
        tolerance=max(part.tolerance for part in parts),
    )
