import warnings

import numpy as np
import pytest
import torch
from tiny import MIXERS, figures, tiny_trainer

from tasks.arithmetic import Arithmetic
from training import compile as compilation
from training.batches import SequenceTensors
from training.compile import WIDTHS, compiles, width_step

TASK = Arithmetic(3)


@pytest.mark.parametrize("mixer", MIXERS)
def test_compiled_training_has_the_same_losses(tmp_path, monkeypatch, mixer):
    """200 sequences in batches of 16: an epoch's last batch has 8."""
    changes = {"mixer": mixer, "steps": 15, "validate_every": 5, "learning_rate": 1e-3}
    plain = tiny_trainer(tmp_path / "plain", TASK, **changes).fit()
    monkeypatch.setattr(compilation, "BACKEND", "aot_eager")
    compiled = tiny_trainer(tmp_path / "compiled", TASK, compile=True, **changes).fit()
    for one, other in zip(plain.curve, compiled.curve, strict=True):
        np.testing.assert_allclose(figures(one), figures(other), rtol=1e-4)


def test_a_compiler_that_fails_costs_speed_only(tmp_path, monkeypatch):
    def broken(graph, inputs):
        raise RuntimeError("no Triton for this card")

    plain = tiny_trainer(tmp_path / "plain", TASK, steps=5, validate_every=5).fit()
    monkeypatch.setattr(compilation, "BACKEND", broken)
    other = tiny_trainer(tmp_path / "other", TASK, steps=5, validate_every=5, compile=True).fit()
    np.testing.assert_allclose(figures(plain.curve[0]), figures(other.curve[0]), rtol=1e-4)


def test_the_hint_to_round_float32_does_not_reach_the_user(tmp_path):
    hint = "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled."
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warnings.warn(hint, stacklevel=1)
        tiny_trainer(tmp_path, TASK, compile=True)
        warnings.warn(hint, stacklevel=1)
    assert [str(warning.message) for warning in told].count(hint) == 1


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method")
def test_graphs_are_pytorch_s_own(tmp_path, monkeypatch):
    """What replays on a GPU runs as it is here; that it is asked for is all that can be seen."""
    asked = []

    def compiled(function, **options):
        asked.append(options)
        return function

    monkeypatch.setattr(torch, "compile", compiled)
    for setting in (True, "graphs"):
        tiny_trainer(tmp_path / str(setting), TASK, steps=2, compile=setting).fit()
    plain, replayed = asked
    assert "mode" not in plain
    assert replayed == plain | {"mode": "reduce-overhead"}


def test_few_shapes_are_compiled(tmp_path, monkeypatch):
    shapes = []

    def backend(graph, inputs):
        shapes.append(next(tuple(x.shape) for x in inputs if x.dtype == torch.int64))
        return graph

    monkeypatch.setattr(compilation, "BACKEND", backend)
    tiny_trainer(tmp_path, TASK, steps=30, compile=True, batch_size=2).fit()
    assert 1 < len(shapes) <= WIDTHS
    assert {batch for batch, _ in shapes} == {2}


@pytest.mark.parametrize("step", [1, 7, 16, 1000])
def test_rounded_batches_hold_the_same_targets(step):
    sequences = SequenceTensors(TASK.draw(0, 1, 0, 30))
    index = torch.arange(10)
    plain, rounded = sequences.batch(index), sequences.batch(index, step)
    width = rounded.tokens.shape[1]
    assert (width - 1) % step == 0 or width == sequences.longest
    assert torch.equal(rounded.tokens[:, : plain.tokens.shape[1]], plain.tokens)
    assert (rounded.tokens[:, plain.tokens.shape[1] :] == 0).all()
    assert rounded.loss_mask.sum() == plain.loss_mask.sum()


def test_padded_share_counts_the_rounding(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation, "BACKEND", "eager")
    trainers = [
        tiny_trainer(tmp_path, TASK, compile=setting, steps=13) for setting in (False, True)
    ]
    plain, rounded = (trainer.padded_share() for trainer in trainers)
    batches = [
        trainers[1].train.batch(part, trainers[1].width_step)
        for step in range(13)
        for part in trainers[1].parts(step)
    ]
    padded = sum(batch.tokens[:, 1:].numel() for batch in batches)
    real = int((trainers[1].train.lengths - 1).sum())  # 13 batches are an epoch
    assert rounded == pytest.approx(1 - real / padded)
    assert rounded > plain == 0


def test_auto_never_compiles_on_a_cpu():
    cpu = torch.device("cpu")
    assert not compiles("auto", cpu)
    assert compiles(True, cpu) and compiles("graphs", cpu)
    assert not compiles(False, torch.device("cuda"))


@pytest.mark.parametrize("longest", [2, 5, 6, 86, 546])
def test_there_are_no_more_widths_than_said(longest):
    step = width_step(longest)
    assert len({-(-width // step) for width in range(1, longest)}) <= WIDTHS
