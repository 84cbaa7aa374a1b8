import numpy as np
import pytest
import torch
from tiny import MIXERS, tiny_trainer

from tasks.arithmetic import Arithmetic
from training.batches import BatchOrder, SequenceTensors
from training.compile import WIDTHS, compiles, width_step

TASK = Arithmetic(3)


@pytest.mark.parametrize("mixer", MIXERS)
def test_compiled_training_has_the_same_losses(tmp_path, mixer):
    """200 sequences in batches of 16: an epoch's last batch has 8."""
    changes = {"mixer": mixer, "steps": 15, "validate_every": 5, "learning_rate": 1e-3}
    plain = tiny_trainer(tmp_path / "plain", TASK, **changes).fit()
    compiled = tiny_trainer(
        tmp_path / "compiled", TASK, compile_backend="aot_eager", **changes
    ).fit()
    for one, other in zip(plain.curve, compiled.curve, strict=True):
        np.testing.assert_allclose(one[2:], other[2:], rtol=1e-4)


def test_a_compiler_that_fails_costs_speed_only(tmp_path):
    def broken(graph, inputs):
        raise RuntimeError("no Triton for this card")

    plain = tiny_trainer(tmp_path / "plain", TASK, steps=5, validate_every=5).fit()
    other = tiny_trainer(
        tmp_path / "other", TASK, steps=5, validate_every=5, compile_backend=broken
    ).fit()
    np.testing.assert_allclose(plain.curve[0][2:], other.curve[0][2:], rtol=1e-4)


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method")
def test_graphs_are_pytorch_s_own(tmp_path, monkeypatch):
    """What replays on a GPU runs as it is here; that it is asked for is all that can be seen."""
    asked = []

    def compiled(function, **options):
        asked.append(options)
        return function

    monkeypatch.setattr(torch, "compile", compiled)
    for graphs in (False, True):
        changes = {"compile_backend": "inductor", "cuda_graphs": graphs}
        tiny_trainer(tmp_path / str(graphs), TASK, steps=2, **changes).fit()
    plain, replayed = asked
    assert "mode" not in plain
    assert replayed == plain | {"mode": "reduce-overhead"}


def test_few_shapes_are_compiled(tmp_path):
    shapes = []

    def backend(graph, inputs):
        shapes.append(next(tuple(x.shape) for x in inputs if x.dtype == torch.int64))
        return graph

    tiny_trainer(tmp_path, TASK, steps=30, compile_backend=backend).fit()
    assert 1 < len(shapes) <= WIDTHS
    assert {batch for batch, _ in shapes} == {16}


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


def test_padded_share_counts_the_rounding():
    sequences = SequenceTensors(TASK.draw(0, 1, 0, 200))
    order = BatchOrder(sequences.lengths, 16, 0)
    order.indices(0)
    step = width_step(sequences.longest)
    batches = [sequences.batch(order.indices(i), step) for i in range(order.batches_per_epoch)]
    padded = sum(batch.tokens[:, 1:].numel() for batch in batches)
    real = int((sequences.lengths - 1).sum())
    assert order.padded_share(step) == pytest.approx(1 - real / padded)
    assert order.padded_share(step) > order.padded_share()


def test_auto_never_compiles_on_a_cpu():
    cpu = torch.device("cpu")
    assert not compiles("auto", cpu)
    assert compiles(True, cpu) and compiles("graphs", cpu)
    assert not compiles(False, torch.device("cuda"))


@pytest.mark.parametrize("longest", [2, 5, 6, 86, 546])
def test_there_are_no_more_widths_than_said(longest):
    step = width_step(longest)
    assert len({-(-width // step) for width in range(1, longest)}) <= WIDTHS
