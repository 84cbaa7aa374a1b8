"""Device placement and host-device synchronisation, tested without a GPU."""

import functools

import pytest
import torch
from other_device import ELSEWHERE, MixedDevices, OtherDevice
from small_models import flat_weights, small_model
from tiny import MIXERS, tiny_trainer, untimed

from evaluation.generate import generate
from tasks.arithmetic import Arithmetic
from tasks.lis import LIS
from training import trainer
from training.data import Layout, SequenceTensors
from training.trainer import Interrupted, validate

TASK = Arithmetic(3)
# PyTorch warns that copying to a meta tensor has no effect.
pytestmark = pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")


@pytest.fixture(autouse=True)
def unfused_adamw(monkeypatch):
    """The simulated device has no fused AdamW. The CPU must not fuse either: AdamW scales up
    rounding errors of zero gradients, such as that of the key bias in softmax."""
    unfused = functools.partial(torch.optim.AdamW, foreach=True)
    monkeypatch.setattr(torch.optim, "AdamW", lambda *given, fused, **more: unfused(*given, **more))


def made_there(*arguments, **changes):
    """A trainer on the simulated device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "resolve_device", lambda device: ELSEWHERE)
        return tiny_trainer(*arguments, **changes)


@pytest.mark.parametrize(
    ("mixer", "optimizer"), [("standard", "adamw"), ("sparse", "muon"), ("linear", "muon")]
)
def test_training_on_another_device_gives_the_same_result(tmp_path, mixer, optimizer):
    changes = {
        "optimizer": optimizer, "average_decay": 0.9, "gradient_clip": 1.0, "learning_rate": 1e-3,
        "steps": 12, "validate_every": 4, "dropout": 0.1,
    }  # fmt: skip
    torch.manual_seed(7)
    here = tiny_trainer(tmp_path / "here", TASK, mixer, **changes)
    here.layout = Layout()  # the other device pads, and dropout draws for padding too
    expected = here.fit()
    with OtherDevice():
        torch.manual_seed(7)
        interrupted = made_there(tmp_path / "there", TASK, mixer, **changes)
        interrupted.should_stop = lambda: interrupted.state.step == 7
        with pytest.raises(Interrupted):
            interrupted.fit()
        there = made_there(tmp_path / "there", TASK, mixer, **changes)
        found = there.fit()
        weights = flat_weights(there.model)
    torch.testing.assert_close(weights, flat_weights(here.model), rtol=1e-4, atol=1e-4)
    for one, other in zip(found.curve, expected.curve, strict=True):
        assert untimed(one) == pytest.approx(untimed(other), rel=1e-3)


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_training_step_never_waits_for_the_device(tmp_path, mixer):
    changes = {"optimizer": "muon", "average_decay": 0.9, "gradient_clip": 1.0, "dropout": 0.1}
    with OtherDevice() as device:
        there = made_there(tmp_path, TASK, mixer, **changes)
        before = len(device.asked)
        for _ in range(3):
            there.step()
        assert device.asked[before:] == []


def test_validation_waits_equally_often_for_any_number_of_batches():
    model, sequences = small_model(TASK), TASK.draw(0, 2, 0, 50)
    expected = validate(model, SequenceTensors(sequences), "float32", batch_size=7)
    with OtherDevice() as device:
        model, there = model.to(ELSEWHERE), SequenceTensors(sequences, ELSEWHERE)
        asked = []
        for batch_size in (7, 50):
            before = len(device.asked)
            assert validate(model, there, "float32", batch_size) == pytest.approx(expected)
            asked.append(len(device.asked) - before)
    assert asked == [2, 2]


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("task", [TASK, LIS(6, "tagged")], ids=lambda task: task.format)
def test_generation_on_another_device_gives_the_same_result(task, mixer):
    sequences = task.draw(0, 0, 0, 6)
    expected = generate(small_model(task, mixer), sequences)
    with OtherDevice():
        found = generate(small_model(task, mixer), sequences, device=ELSEWHERE)
    assert found.tokens.tolist() == expected.tokens.tolist()
    assert found.lengths.tolist() == expected.lengths.tolist()


def test_the_simulated_device_behaves_like_another_device():
    with OtherDevice() as device:
        there, here = torch.arange(3.0, device=ELSEWHERE), torch.arange(3.0)
        with pytest.raises(MixedDevices):
            there + here
        with pytest.raises(MixedDevices):
            here[there.long()]
        assert here.to(ELSEWHERE, non_blocking=True).device == ELSEWHERE
        assert (there * torch.tensor(2.0) + 1).device == ELSEWHERE and device.asked == []
        for question in (
            lambda: float(there[0]), lambda: there.cpu(), lambda: there[there > 1],
            lambda: torch.equal(there, there), lambda: here.to(ELSEWHERE),
            lambda: there.copy_(here),
        ):  # fmt: skip
            before = len(device.asked)
            question()
            assert len(device.asked) == before + 1
