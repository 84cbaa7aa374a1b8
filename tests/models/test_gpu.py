"""Fast implementations on a GPU, compared with float64 references on the CPU: `pytest -m gpu`."""

import copy

import pytest
import torch
from comparing import compare
from configured import VARIANTS, mixers_of, model_of, names
from small_models import flat_weights, plain_greedy, written
from torch.nn import functional as F

from evaluation.generate import generate
from tasks.arithmetic import Arithmetic
from training.data import SequenceTensors
from training.device import Machine, resolve_device
from training.recipe import Recipe
from training.trainer import Trainer, autocast

DEVICE, CPU = torch.device("cuda"), torch.device("cpu")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-1}
TASK = Arithmetic(3)


@pytest.mark.parametrize("name", [*names(), *VARIANTS])
def test_output_and_gradients_equal_the_reference(name):
    resolve_device("cuda")  # turns TensorFloat32 off
    for mixer in mixers_of(name, max_len=221):
        for length in (7, 8, 63):
            mixer.to(DEVICE).train()  # cuDNN's LSTM has no gradient in eval mode; dropout is 0
            compare(mixer, torch.randn(2, length, 16, device=DEVICE), 1e-4)


def loss_and_gradient(model, device, precision="float32"):
    """The loss of 32 sequences, and every gradient as one vector."""
    batch = SequenceTensors(TASK.draw(0, 1, 0, 32), device).batch(torch.arange(32))
    with autocast(precision, device):
        logits = model.head(batch.at_targets(model.hidden(batch.inputs)))
    loss = F.cross_entropy(logits.to(model.head.weight.dtype), batch.targets)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return [loss.detach().cpu(), torch.cat([x.flatten() for x in gradients]).cpu()]


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("precision", TOLERANCE)
def test_loss_and_gradients_of_whole_models(name, precision):
    model = model_of(name, max_len=TASK.max_len, vocabulary=len(TASK.vocabulary))
    exact_loss, exact_gradient = loss_and_gradient(copy.deepcopy(model).double(), CPU)
    loss, gradient = loss_and_gradient(model.to(DEVICE), DEVICE, precision)
    assert abs(loss - exact_loss) < TOLERANCE[precision]
    assert (gradient - exact_gradient).norm() < TOLERANCE[precision] * exact_gradient.norm()


@pytest.mark.parametrize("name", names())
def test_exact_evaluation_equals_plain_greedy_decoding(name):
    model = model_of(name, max_len=TASK.max_len, vocabulary=len(TASK.vocabulary))
    model.head.weight.data.mul_(20)  # so that an untrained model's choices vary
    sequences = TASK.draw(0, 0, 0, 16)
    expected = plain_greedy(copy.deepcopy(model), sequences)
    assert written(generate(model, sequences, device=DEVICE)) == expected


@pytest.mark.parametrize("compile", [False, True])
def test_training_gives_nearly_the_same_weights_as_on_the_cpu(tmp_path, compile):
    recipe = Recipe("gpu", 1e-3, 64, steps=20, optimizer="muon", validate_every=10)
    sets, ends = (TASK.draw(0, 2, 0, 2000), TASK.draw(0, 1, 0, 200)), []
    for device, way in (("cpu", False), (str(DEVICE), compile)):
        model = model_of("linear", max_len=TASK.max_len, vocabulary=len(TASK.vocabulary))
        machine = Machine(device=device, compile=way)
        Trainer(model, recipe, 0, *sets, tmp_path / f"{device}{way}", machine).fit()
        ends.append(flat_weights(model))
    assert (ends[0] - ends[1]).norm() < 0.05 * ends[0].norm()
