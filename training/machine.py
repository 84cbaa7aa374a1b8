"""How a cell runs on a machine: settings that decide speed and memory, never the result."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from common import UserError

# Each bound lies above every sensible value, so that what exceeds it is a typing mistake.
MOST_THREADS = 1024  # more than the cores of any one machine
THREADS_A_CORE = 4  # more only take turns
MOST_SEQUENCES = 2**20  # more than any batch has
MOST_MEGABYTES = 2**24  # 16 TiB: more than any machine has
LONGEST_CHECKPOINT_SECONDS = 86_400  # a kill would cost more than a day
LONGEST_TIME_LIMIT_SECONDS = 366 * 86_400  # no queue grants a year


@dataclass(frozen=True)
class Machine:
    """The machine settings of one cell.

    ``device`` is auto, cpu, cuda or cuda:N; ``compile`` auto, true, false or graphs (CUDA graphs
    besides).  ``micro_batch_size`` is how many sequences are held at a time, their gradients
    summed: the same batch in less memory; null holds as many as runs fastest.
    ``evaluation_memory_mb`` bounds what evaluation holds; ``checkpoint_seconds`` is the time
    between checkpoints; after ``time_limit_seconds`` training stops, to be continued later.
    Raises `UserError` for values out of range.
    """

    device: str = "auto"
    compile: Any = "auto"
    threads: int = 1
    micro_batch_size: int | None = None
    evaluation_memory_mb: Any = "auto"
    checkpoint_seconds: float = 60
    time_limit_seconds: float | None = None

    __pydantic_config__: ClassVar[dict] = {"extra": "forbid", "strict": True}

    def __post_init__(self) -> None:
        if not re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", self.device):
            raise UserError(f"device={self.device}: must be auto, cpu, cuda or cuda:N")
        if self.compile not in ("auto", "graphs") and not isinstance(self.compile, bool):
            raise UserError(f"compile={self.compile}: must be auto, true, false or graphs")
        if self.micro_batch_size is not None:
            self._require_micro_batches(self.micro_batch_size)
        require_memory(self.evaluation_memory_mb)
        if not 1 <= self.threads <= MOST_THREADS:
            raise UserError(f"threads={self.threads}: must be from 1 to {MOST_THREADS}")
        _require_seconds("checkpoint_seconds", self.checkpoint_seconds, LONGEST_CHECKPOINT_SECONDS)
        if self.time_limit_seconds is not None:
            limit = LONGEST_TIME_LIMIT_SECONDS
            _require_seconds("time_limit_seconds", self.time_limit_seconds, limit)

    def _require_micro_batches(self, size: int) -> None:
        if not 1 <= size <= MOST_SEQUENCES:
            raise UserError(
                f"micro_batch_size={size}: must be from 1 to {MOST_SEQUENCES:,}, or null"
            )
        if self.compile == "graphs":
            # A replay would write the next part's gradients over the sum.
            raise UserError("micro_batch_size: not together with compile=graphs")

    def use_threads(self) -> None:
        """Let PyTorch use ``threads`` threads; raise `UserError` where the cores are too few."""
        self.require_cores()
        torch.set_num_threads(self.threads)

    def require_cores(self) -> None:
        """Raise `UserError` where the cores are too few; another machine may well have them."""
        cores = os.cpu_count() or 1
        if self.threads > THREADS_A_CORE * cores:
            raise UserError(
                f"threads={self.threads}: must be at most {THREADS_A_CORE * cores} here, "
                f"{THREADS_A_CORE} for each of {cores} cores"
            )


def require_memory(value: Any) -> None:
    """Raise `UserError` for an ``evaluation_memory_mb`` that is neither auto nor megabytes."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value != "auto" and not (number and 0 < value <= MOST_MEGABYTES):
        raise UserError(
            f"evaluation_memory_mb={value}: must be auto or a number of megabytes greater than 0"
            + (f", at most {MOST_MEGABYTES:,}" if number and value > 0 else "")
        )


def _require_seconds(key: str, value: float, most: float) -> None:
    if math.isnan(value) or value <= 0:
        raise UserError(f"{key}={value}: must be greater than 0")
    if value > most:
        raise UserError(f"{key}={value}: must be at most {most:,} seconds")
