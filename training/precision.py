"""In which number format the matrix products of training run."""

from __future__ import annotations

import contextlib

import torch

from common import UserError


def resolve_device(device: str) -> torch.device:
    """Return the device that ``auto``, ``cpu``, ``cuda`` or ``cuda:N`` means here.

    Raises `UserError` when it is not there.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError:
        raise UserError(f"device={device}: must be auto, cpu, cuda or cuda:N") from None
    if resolved.type not in ("cpu", "cuda"):
        raise UserError(f"device={device}: must be auto, cpu, cuda or cuda:N")
    if resolved.type == "cuda" and (resolved.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"device={device}: there are {torch.cuda.device_count()} CUDA devices here; "
            "use device=cpu or device=auto"
        )
    return resolved


def resolve_precision(precision: str, device: torch.device, dim: int) -> str:
    """Return ``float32`` or ``bfloat16`` for ``auto``.

    Measured on a CPU with bf16 instructions: autocast pays from D = 64 (1.4 times at L = 87) and
    costs below; on a GPU it always pays.
    """
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bfloat16"
    native = torch.backends.cpu.get_cpu_capability().startswith("AVX512") and _has_bf16()
    return "bfloat16" if native and dim >= 64 else "float32"


def _has_bf16() -> bool:
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(supported()) if supported else False


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager:
    """Return the context in which a forward pass runs at ``precision``."""
    if precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
