"""A simulated second device: tensors report device "meta" but keep their values on the CPU.

Inside `OtherDevice` the meta device computes. As on a GPU, an operation cannot mix tensors of both
devices (except 0-d tensors). Operations that would make the host wait for the GPU are recorded:
reading values from the device, and copying to it without non_blocking.
"""

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

ELSEWHERE = torch.device("meta")
aten = torch.ops.aten
MOVES = (aten.copy_.default, aten._to_copy.default)
ASKING = (  # the size of the result depends on values, or the result is a Python number
    aten._local_scalar_dense.default, aten.is_nonzero.default, aten.nonzero.default,
    aten.masked_select.default, aten.equal.default, aten._unique2.default,
)  # fmt: skip
INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)


class MixedDevices(RuntimeError):
    """An operation was given tensors of both devices."""


class Held(Tensor):
    """A tensor on the simulated device; `held` has its values."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(),
            dtype=held.dtype, device=ELSEWHERE,
        )  # fmt: skip

    def __init__(self, held):
        self.held = held

    def __reduce_ex__(self, protocol):
        return self.held.__reduce_ex__(protocol)  # saved as a CPU tensor

    def tolist(self):
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} outside OtherDevice")


class OtherDevice(TorchDispatchMode):
    """Context manager that enables the device; `asked` lists operations the host waited for."""

    def __init__(self):
        super().__init__()
        self.asked: list[str] = []

    def __enter__(self):
        # Otherwise Module.to() and double() replace `data` while `held` keeps the old values.
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        return super().__enter__()

    def __exit__(self, *exception):
        super().__exit__(*exception)
        torch.__future__.set_overwrite_module_params_on_conversion(False)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [x for x in tree_iter((args, kwargs)) if isinstance(x, Tensor)]
        elsewhere = any(isinstance(x, Held) for x in tensors)
        here_alone = any(x.dim() > 0 and not isinstance(x, Held) for x in tensors)
        if elsewhere and here_alone and func not in MOVES:
            shapes = [(type(x).__name__, tuple(x.shape)) for x in tensors]
            raise MixedDevices(f"{func}: {shapes}")
        if waits(func, args, kwargs):
            self.asked.append(str(func))
        if kwargs.get("device") is not None:
            elsewhere = torch.device(kwargs["device"]) == ELSEWHERE
            kwargs["device"] = "cpu"
        result = func(*tree_map(here, args), **tree_map(here, kwargs))
        same = {id(x.held): x for x in tensors if isinstance(x, Held)}  # for in-place operations
        return tree_map(lambda x: there(x, same), result) if elsewhere else result


def waits(func, args, kwargs):
    """Whether the host has to wait for the device."""
    if func is aten._to_copy.default:
        target = torch.device(kwargs.get("device") or args[0].device)
        crosses = (args[0].device == ELSEWHERE) != (target == ELSEWHERE)
        return crosses and not (target == ELSEWHERE and kwargs.get("non_blocking"))
    if func is aten.copy_.default:
        to, source = (isinstance(x, Held) for x in args[:2])
        return to != source and not (to and kwargs.get("non_blocking"))
    if func is aten.repeat_interleave.Tensor:
        return isinstance(args[0], Held) and kwargs.get("output_size") is None
    if func in INDEXING and isinstance(args[0], Held):
        return any(x is not None and x.dtype == torch.bool for x in args[1])
    return func in ASKING and isinstance(args[0], Held)


def here(x):
    return x.held if isinstance(x, Held) else x


def there(x, same):
    """Wrap a tensor for the simulated device; return anything else unchanged."""
    return same[id(x)] if id(x) in same else Held(x) if isinstance(x, Tensor) else x
