"""Choice of the device, and compilation."""

import numpy as np
import pytest
import torch
from tiny import MIXERS, tiny_trainer, untimed

from common import UserError
from tasks.arithmetic import Arithmetic
from training import device
from training.device import compiles, resolve_device
from training.trainer import WIDTHS

TASK = Arithmetic(3)


def broken(graph, inputs):
    raise RuntimeError("no Triton for this card")


@pytest.mark.parametrize(
    ("mixer", "backend"), [*((mixer, "aot_eager") for mixer in MIXERS), ("standard", broken)]
)
def test_losses_are_the_same_when_compiled_or_when_the_compiler_fails(
    tmp_path, monkeypatch, mixer, backend
):
    """200 sequences in batches of 16: the last batch of an epoch has 8."""
    changes = {"mixer": mixer, "steps": 15, "validate_every": 5, "learning_rate": 1e-3}
    plain = tiny_trainer(tmp_path / "plain", TASK, **changes).fit()
    monkeypatch.setattr(device, "BACKEND", backend)
    compiled = tiny_trainer(tmp_path / "compiled", TASK, compile=True, **changes).fit()
    for one, other in zip(plain.curve, compiled.curve, strict=True):
        np.testing.assert_allclose(untimed(one), untimed(other), rtol=1e-4)


def test_few_shapes_are_compiled_and_all_before_the_clock_starts(tmp_path, monkeypatch):
    shapes, before = [], []

    def backend(graph, inputs):
        shapes.append(next(tuple(x.shape) for x in inputs if x.dtype == torch.int64))
        return graph

    monkeypatch.setattr(device, "BACKEND", backend)
    trainer = tiny_trainer(tmp_path, TASK, steps=30, compile=True, batch_size=2)
    trainer.listener = lambda event: before.append(len(shapes))
    trainer.fit()
    assert before[0] == before[-1] == len(shapes)
    assert 1 < len(shapes) <= WIDTHS
    assert {batch for batch, _ in shapes} == {2}


def test_auto_is_cuda_if_available_and_a_second_one_is_missing(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match="device=cuda:1: this machine has 1 CUDA devices"):
        resolve_device("cuda:1")
    for available, found in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda available=available: available)
        assert resolve_device("auto") == torch.device(found)


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
