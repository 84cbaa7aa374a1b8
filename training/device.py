"""Where a cell runs: device, threads, memory, compilation. Not part of a cell's identity."""

import ctypes
import functools
import importlib.util
import platform
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass
from torch import Tensor

from common import STRICT, UserError

BACKEND: str | Callable[..., Any] = "inductor"  # of torch.compile


@dataclass(frozen=True, config=STRICT)
class Machine:
    """The `machine` group.

    `compile` compiles forward and backward pass: auto only on CUDA (a CPU gains nothing). `threads`
    are PyTorch's. `micro_batch_size` splits a batch to save memory. `evaluation_memory_mb` bounds
    evaluation (`evaluation.generate`). `checkpoint_seconds` is the time between checkpoints;
    `time_limit_seconds` stops training, which can be resumed.
    """

    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    compile: Literal["auto"] | bool = "auto"
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    micro_batch_size: PositiveInt | None = None
    evaluation_memory_mb: Literal["auto"] | PositiveFloat = "auto"
    checkpoint_seconds: PositiveFloat = 60
    time_limit_seconds: PositiveFloat | None = None


def resolve_device(device: str) -> torch.device:
    """The device for auto, cpu, cuda or cuda:N; UserError if it is missing."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    resolved = torch.device(device)
    if resolved.type == "cuda" and (resolved.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"device={device}: this machine has {torch.cuda.device_count()} CUDA devices; "
            "use device=cpu or device=auto"
        )
    if resolved.type == "cuda":  # by default, cuDNN runs float32 LSTMs in TensorFloat32
        torch.backends.cudnn.allow_tf32 = False
    return resolved


@functools.cache
def device_name(device: torch.device) -> str:
    """Type and model of a device, e.g. "cpu: AMD EPYC"."""
    if device.type == "cuda":
        return f"cuda: {torch.cuda.get_device_name(device)}"
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    found = re.search(r"^model name\s*: (.*\S)", text, re.MULTILINE)
    return f"{device.type}: {found[1] if found else platform.processor() or platform.machine()}"


def compiles(setting: str | bool, device: torch.device) -> bool:
    """Whether to compile on `device`; "auto" compiles on CUDA if Triton is installed."""
    if setting == "auto":
        return device.type == "cuda" and importlib.util.find_spec("triton") is not None
    return bool(setting)


def compiled(hidden: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`Transformer.hidden`, compiled for every new shape. If the compiler fails, PyTorch logs why
    and the model runs uncompiled."""
    # float32 is chosen for its precision; ignore PyTorch's hint to use TensorFloat32.
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores", UserWarning)
    torch.compiler.reset()  # earlier models in this process count towards the limit
    torch._dynamo.config.suppress_errors = True
    return torch.compile(hidden, dynamic=False, backend=BACKEND)


def keep_freed_memory() -> None:
    """Let glibc keep up to half a GiB of freed memory. By default it returns blocks of over 128 KiB
    to the system, and each step faults them in again: 24 ms instead of 17 at three operators and D
    = 32 (one EPYC core). Linux only."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3  # of malloc.h
        for size in (2**25, 2**30):  # not every glibc takes more than the first
            mallopt(mmap_threshold, size)
        mallopt(trim_threshold, 2**29)
