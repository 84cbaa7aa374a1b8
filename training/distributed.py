"""Several processes train one model, each on its share of every batch (data parallel).

``torchrun --nproc-per-node=N train.py ...`` starts them, gloo connects them on CPUs, NCCL on GPUs.
All hold the whole model and the whole data, and all know the same global batch.  Each computes what
its share contributes to the gradient of the mean loss over the targets of the global batch, and
these are summed over all processes.  Clipping and the optimiser then do the same on every process.
So the curve is that of one process but for rounding, and but for dropout, whose masks are drawn per
process.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from common import RunError, UserError
from torchrun import launched
from training.precision import resolve_device

T = TypeVar("T")

# Longest wait for the others: they may be building a data set.  A process that dies is noticed at
# once; this ends the run of one that hangs.
PATIENCE = datetime.timedelta(minutes=30)
LETTING_GO = 0.2  # seconds


class PeerLostError(RunError):
    """Another process of this training ended or did not answer; the checkpoint continues it."""


@dataclass(frozen=True)
class Processes:
    """This process (``rank``, from 0) among the ``size`` that train one model."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def share(self, index: Tensor) -> Tensor:
        """Return which of the batch's sequences ``index`` (B,) are this process's.

        Every ``size``-th, so that of a sorted batch all get like lengths; none where the batch is
        too small.
        """
        return index[self.rank :: self.size]

    def sum_gradients(self, model: nn.Module, loss: Tensor) -> Tensor:
        """Add up all processes' gradients, in place, and return the sum of their losses.

        One exchange: all gradients in one flat tensor.  A parameter that got no gradient in one
        process counts as zero there.
        """
        if self.size == 1:
            return loss
        parameters = [p for p in model.parameters() if p.requires_grad]
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [p.grad for p in parameters if p.grad is not None]
        bucket = torch.cat([*(g.flatten() for g in gradients), loss.reshape(1)])
        self._exchange(dist.all_reduce, bucket)
        *summed, total = bucket.split([*(g.numel() for g in gradients), 1])
        for gradient, part in zip(gradients, summed, strict=True):
            gradient.copy_(part.view_as(gradient))
        return total[0]

    def sum_numbers(self, *numbers: float) -> list[float]:
        """Return the sums over all processes, the same on each to the bit."""
        if self.size == 1:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.float64)
        self._exchange(dist.all_reduce, sums)
        return sums.tolist()

    def any(self, flag: bool) -> bool:
        """Return whether ``flag`` is true in one of the processes."""
        return self.sum_numbers(bool(flag))[0] > 0

    def from_first(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returns in the first process; the others do not call it."""
        if self.size == 1:
            return make()
        held = [make() if self.first else None]
        self._exchange(dist.broadcast_object_list, held, 0, None, torch.device("cpu"))
        return cast("T", held[0])

    def copy_from_first(self, model: nn.Module) -> None:
        """Give every process the first one's parameters and buffers."""
        if self.size == 1:
            return
        for tensor in model.state_dict().values():
            self._exchange(dist.broadcast, tensor, 0)

    def seed_step(self, seed: int, step: int) -> None:
        """Draw this step's dropout from (seed, step, rank), whatever was drawn before.

        One process goes on with its generator, whose state the checkpoint holds.
        """
        if self.size > 1:
            words = np.random.SeedSequence([seed, step, self.rank]).generate_state(1, np.uint64)
            torch.manual_seed(int(words[0]))

    def _exchange(self, operation: Callable[..., object], *arguments: object) -> None:
        try:
            operation(*arguments)
        except RuntimeError as error:
            reason = str(error).strip().split("\n")[0][:120]
            raise PeerLostError(
                f"process {self.rank} of {self.size} lost the others ({reason}); the same command "
                "continues from the checkpoint"
            ) from None


ALONE = Processes()


def own_device(device: str) -> torch.device:
    """Return the device of this process: under torchrun, the GPU of its local rank.

    Raises `UserError` as `resolve_device` does, and where processes would have to share a GPU.
    """
    if launched() == 1:
        return resolve_device(device)
    if ":" in device:
        raise UserError(
            f"device={device}: under torchrun it must be auto, cpu or cuda; "
            "every process takes the GPU of its local rank"
        )
    resolved = resolve_device(device)
    if resolved.type == "cpu":
        return resolved
    here, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if here > gpus:
        raise UserError(f"--nproc-per-node={here}: there are {gpus} CUDA devices here")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


@contextlib.contextmanager
def joined(device: str) -> Iterator[Processes]:
    """Join the processes that torchrun started, if it did, until the block ends."""
    if launched() == 1:
        yield ALONE
        return
    own = own_device(device)
    if own.type == "cuda":
        torch.cuda.set_device(own)
    backend = "cpu:gloo,cuda:nccl" if own.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=PATIENCE)
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
    finally:
        # Gloo's threads need the interpreter to let go of the last tensors: one that ends before
        # they have done so aborts the process.
        time.sleep(LETTING_GO)
        dist.destroy_process_group()
