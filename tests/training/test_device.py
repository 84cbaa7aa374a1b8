import math

import pytest
import torch
from pydantic import ValidationError

from common import UserError
from training.device import Machine, compiles, device_name, resolve_device

OUT_OF_RANGE = [
    {"device": "gpu"}, {"compile": "yes"}, {"threads": 0}, {"micro_batch_size": 0},
    {"evaluation_memory_mb": 0}, {"evaluation_memory_mb": "much"}, {"checkpoint_seconds": 0},
    {"checkpoint_seconds": math.nan}, {"time_limit_seconds": -1}, {"cores": 2},
]  # fmt: skip


@pytest.mark.parametrize("values", OUT_OF_RANGE, ids=str)
def test_a_value_out_of_range_is_refused_by_its_name(values):
    (key,) = values
    with pytest.raises(ValidationError, match=key):
        Machine(**values)


def test_graphs_hold_the_whole_batch():
    with pytest.raises(ValidationError, match="does not go together with compile=graphs"):
        Machine(compile="graphs", micro_batch_size=8)


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match="device=cuda:1: there are 1 CUDA devices here"):
        resolve_device("cuda:1")
    for available, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda available=available: available)
        assert resolve_device("auto") == torch.device(device)


def test_float32_on_cuda_is_not_tensorfloat32(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    resolve_device("cpu")
    assert torch.backends.cudnn.allow_tf32
    resolve_device("cuda")
    assert not torch.backends.cudnn.allow_tf32


def test_a_device_has_a_name():
    assert device_name(torch.device("cpu")).startswith("cpu: ")


def test_auto_never_compiles_on_a_cpu():
    cpu = torch.device("cpu")
    assert not compiles("auto", cpu)
    assert compiles(True, cpu) and compiles("graphs", cpu)
    assert not compiles(False, torch.device("cuda"))
