"""Where a cell runs: device, threads, memory, compilation. Does not affect results."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import platform
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import ConfigDict, Field, StrictBool
from pydantic.dataclasses import dataclass
from torch import Tensor

from common import UserError

Positive = Annotated[float, Field(gt=0, strict=True)]
BACKEND: str | Callable[..., Any] = "inductor"  # of torch.compile


@dataclass(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class Machine:
    """The Hydra group `machine`.

    ``compile`` compiles the forward pass and its gradient: auto means on CUDA, graphs records CUDA
    graphs as well.  ``threads`` are PyTorch's.  ``micro_batch_size`` is how many sequences are held
    at a time, their gradients summed: the same batch in less memory; null holds as many as runs
    fastest.  ``evaluation_memory_mb`` bounds what evaluation holds (`evaluation.generate`);
    ``checkpoint_seconds`` is the time between checkpoints; after ``time_limit_seconds`` training
    stops, to be continued later.
    """

    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    compile: Literal["auto", "graphs"] | StrictBool = "auto"
    threads: Annotated[int, Field(ge=1, le=1024, strict=True)] = 1
    micro_batch_size: Annotated[int, Field(ge=1, strict=True)] | None = None
    evaluation_memory_mb: Literal["auto"] | Positive = "auto"
    checkpoint_seconds: Positive = 60
    time_limit_seconds: Positive | None = None

    def __post_init__(self) -> None:
        if self.compile == "graphs" and self.micro_batch_size is not None:
            # A replay would write the next part's gradients over the sum.
            raise ValueError("micro_batch_size does not go together with compile=graphs")


def resolve_device(device: str) -> torch.device:
    """Return the device that auto, cpu, cuda or cuda:N means here.

    Raises `UserError` when it is not there.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    resolved = torch.device(device)
    if resolved.type == "cuda" and (resolved.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"device={device}: there are {torch.cuda.device_count()} CUDA devices here; "
            "use device=cpu or device=auto"
        )
    return resolved


@functools.cache
def device_name(device: torch.device) -> str:
    """Return type and model of a device, such as "cpu: AMD EPYC"."""
    if device.type == "cuda":
        return f"cuda: {torch.cuda.get_device_name(device)}"
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        name = models[0] if models else name
    return f"{device.type}: {name}"


def compiles(setting: str | bool, device: torch.device) -> bool:
    """Return whether ``machine.compile`` compiles on ``device``.

    auto does not on a CPU, where nothing was gained, nor without Triton.
    """
    if setting == "auto":
        return device.type == "cuda" and importlib.util.find_spec("triton") is not None
    return bool(setting)


def compiled(hidden: Callable[..., Tensor], cuda_graphs: bool = False) -> Callable[..., Tensor]:
    """Return ``Transformer.hidden`` of one model, compiled anew at every shape that it meets.

    With ``cuda_graphs`` its launches, and those of its gradient, are recorded once and replayed: a
    small model spends most of its step launching.  What it returns, and the gradients, then lie in
    memory that the next step overwrites: the caller marks the beginning of each.
    Where the compiler fails, PyTorch logs why and the model runs uncompiled.
    """
    # Who asks for float32 means its precision: PyTorch's hint to use TensorFloat32 is no help.
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores", UserWarning)
    torch.compiler.reset()  # what earlier models in this process left counts towards the limit
    torch._dynamo.config.suppress_errors = True
    mode = {"mode": "reduce-overhead"} if cuda_graphs else {}
    return torch.compile(hidden, dynamic=False, backend=BACKEND, **mode)  # type: ignore[call-overload]


def keep_freed_memory() -> None:
    """Let glibc keep up to half a GiB of freed memory for the next step.

    It gives blocks of more than 128 KiB back to the system otherwise, and a step of a small model
    gets hundreds of pages anew: 24 ms instead of 17 at three operators and D = 32 (one core of an
    EPYC); a window over 16,384 tokens takes 207 ms instead of 420.  Only Linux has this.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3  # of malloc.h
        for size in (2**25, 2**30):  # not every glibc takes more than the first
            mallopt(mmap_threshold, size)
        mallopt(trim_threshold, 2**29)
