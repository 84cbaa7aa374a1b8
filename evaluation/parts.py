"""What is kept on disk of a long generation, so that one cut off goes on where it was."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import numpy as np
import torch

from common import write_atomically
from evaluation.generation import Generation, Progress, generate, longest_sequence
from evaluation.memory import LARGEST_BATCH
from models.transformer import Transformer
from tasks.task import SequenceSet

# Sequences of a part.  A part generates token by token, which on a GPU takes as long for one
# sequence as for a batch: few parts, of full batches.
PART = {"cpu": 10_000, "cuda": 4 * LARGEST_BATCH["cuda"]}


def generate_in_parts(
    model: Transformer,
    sequences: SequenceSet,
    memory_mb: float,
    device: torch.device | str,
    progress: Progress,
    folder: Path,
) -> tuple[Generation, float]:
    """Return what `generate` returns and the seconds it took, over all calls.

    Each part of `part_size` sequences is kept in ``folder`` and counts when it was written for
    these weights and these sequences.  The caller deletes the folder.  Raises what `generate`
    raises.
    """
    longest_sequence(model, sequences)  # a sequence too long is refused before the first part
    weights = _digest(*(tensor.detach().cpu().numpy() for tensor in model.state_dict().values()))
    parts, seconds, size = [], 0.0, part_size(device)
    for start in range(0, len(sequences), size):
        some = sequences.select(slice(start, start + size))
        path, key = folder / f"{start}.npz", f"{weights} {_digest(some.tokens, some.lengths)}"
        known = _read_part(path, key)
        if known is None:
            after = _after(start, len(sequences), progress)
            begun = time.perf_counter()
            part = generate(model, some, memory_mb, device, after)
            known = part, time.perf_counter() - begun
            _write_part(path, key, *known)
        parts.append(known[0])
        seconds += known[1]
    return _joined(parts), seconds


def part_size(device: torch.device | str) -> int:
    """Return how many sequences are evaluated before a part is kept."""
    return PART.get(torch.device(device).type, PART["cpu"])


def _after(before: int, total: int, progress: Progress) -> Progress:
    """Return the progress of a part that ``before`` of ``total`` sequences precede."""
    return lambda done, _: progress(before + done, total)


def _digest(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _write_part(path: Path, key: str, part: Generation, seconds: float) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, key=key, seconds=seconds, **vars(part))

    write_atomically(path, write)


def _read_part(path: Path, key: str) -> tuple[Generation, float] | None:
    """Return a kept part and its seconds; None when there is none of this key."""
    try:
        with np.load(path) as content:
            if str(content["key"]) != key:
                return None
            arrays = {name: content[name] for name in Generation.__dataclass_fields__}
            seconds = float(content["seconds"])
    except Exception:  # absent, or whatever a damaged file makes its reader raise
        return None
    values = {name: array if array.ndim else array.item() for name, array in arrays.items()}
    return Generation(**values), seconds


def _joined(parts: list[Generation]) -> Generation:
    return Generation(
        tokens=np.concatenate([part.tokens for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
        first_mistake=np.concatenate([part.first_mistake for part in parts]),
        certified=sum(part.certified for part in parts),
        close_calls=sum(part.close_calls for part in parts),
        tolerance=max(part.tolerance for part in parts),
        largest_error=max(part.largest_error for part in parts),
    )
