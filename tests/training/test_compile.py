import numpy as np
import pytest
import torch
from tiny import MIXERS, tiny_trainer, untimed

from tasks.arithmetic import Arithmetic
from training import device
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
