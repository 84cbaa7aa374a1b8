import pytest
import torch

from common import UserError
from training.device import compiles, resolve_device


def test_auto_is_cuda_if_available_and_a_second_one_is_missing(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match="device=cuda:1: this machine has 1 CUDA devices"):
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


def test_auto_never_compiles_on_a_cpu():
    cpu = torch.device("cpu")
    assert not compiles("auto", cpu)
    assert compiles(True, cpu)
    assert not compiles(False, torch.device("cuda"))
