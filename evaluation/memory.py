"""How many sequences fit into memory at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from models.transformer import Transformer

LARGEST_BATCH = {"cpu": 1024, "cuda": 8192}  # sequences generated together
CPU_MEMORY_MB = 1024.0
# Certifying 167-token sequences at D = 128 on one core takes 4.3 ms each in batches of 16 and 32,
# 6.4 in batches of 256: activations should fit the cache.
CPU_TOKENS_PER_BATCH = 4096


def memory_for(setting: float | str, device: torch.device) -> float:
    """Return the megabytes that a number or ``auto`` means here.

    auto: `CPU_MEMORY_MB` on a CPU, half of what is free now on a GPU, so that each of several
    cells side by side leaves room for the next.
    """
    if setting != "auto":
        return float(setting)
    if device.type != "cuda":
        return CPU_MEMORY_MB
    torch.cuda.empty_cache()  # what this process keeps for later is free
    return torch.cuda.mem_get_info(device)[0] / 2**20 / 2


@dataclass
class BatchSizes:
    """The largest batches: ``tokens`` of one that is certified, ``rows`` of one that is generated;
    no sequence has more than ``longest`` tokens."""

    tokens: int
    rows: int
    longest: int

    @classmethod
    def within(
        cls, memory_mb: float, model: Transformer, longest: int, device: torch.device
    ) -> BatchSizes:
        """Return what ``memory_mb`` allows; a batch of one sequence always."""
        budget = memory_mb * 2**20
        bytes_per_token = 4 * (16 * model.dim + 4 * model.head.out_features)
        tokens = max(1, int(budget / bytes_per_token))
        if device.type == "cpu":
            tokens = min(tokens, CPU_TOKENS_PER_BATCH)
        # Mixers may hold their state for max_len tokens at once, and compacting copies it.
        bytes_per_row = 2 * model.state_bytes(model.max_len) + bytes_per_token * longest
        most = LARGEST_BATCH.get(device.type, LARGEST_BATCH["cpu"])
        return cls(tokens, max(1, min(most, int(budget / bytes_per_row))), longest)

    def halve(self) -> bool:
        """Hold half as much at a time; false when a batch is one sequence already."""
        if self.rows == 1 and self.tokens <= self.longest:
            return False
        self.rows = max(1, self.rows // 2)
        self.tokens = max(1, self.tokens // 2)
        return True

    def split_for_float64(self, rows: Tensor) -> list[Tensor]:
        """Cut ``rows`` into batches for whole forward passes of the float64 model."""
        return [part for part in rows.split(max(1, self.rows // 8)) if len(part)]
