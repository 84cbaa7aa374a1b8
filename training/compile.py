"""torch.compile of the training's forward pass; its gradient is compiled with it."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from models.transformer import Transformer

BACKEND: str | Callable[..., Any] = "inductor"
# Every width is a compilation of its own, and PyTorch gives up after eight of them; so batches
# are padded to one of few widths.
WIDTHS = 4


def compiles(setting: str | bool, device: torch.device) -> bool:
    """Tell whether the setting ``compile`` (auto, true, false, graphs) compiles on ``device``.

    auto: on CUDA, where Triton is installed.  Not on a CPU: nothing was gained there.
    """
    if setting == "auto":
        return device.type == "cuda" and importlib.util.find_spec("triton") is not None
    return bool(setting)


def compiled_hidden(model: Transformer, cuda_graphs: bool = False) -> Callable[[Tensor], Tensor]:
    """Return ``model.hidden``, compiled anew at every shape that it meets.

    With ``cuda_graphs`` its launches, and those of its gradient, are recorded once and replayed:
    a small model spends most of its step launching.  What it returns, and the gradients, then lie
    in memory that the next step overwrites: the caller marks the beginning of each.
    Where the compiler fails, PyTorch logs why and the model runs uncompiled: a machine whose
    Triton is broken trains slower, not never.
    """
    # Who asks for float32 means its precision: PyTorch's hint to use TensorFloat32 is no help.
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores", UserWarning)
    torch._dynamo.reset()  # what earlier models in this process left counts towards the limit
    torch._dynamo.config.suppress_errors = True
    mode = {"mode": "reduce-overhead"} if cuda_graphs else {}
    return torch.compile(model.hidden, dynamic=False, backend=BACKEND, **mode)  # type: ignore[call-overload]


def width_step(longest: int) -> int:
    """Return the step between the `WIDTHS` widths, for sequences of up to ``longest`` tokens."""
    return -(-(longest - 1) // WIDTHS)
