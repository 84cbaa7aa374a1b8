"""Training: loss curves, steps, schedules, early stopping, checkpoints and resuming."""

import copy
import dataclasses
import itertools
import json
from unittest.mock import Mock

import pytest
import torch
from small_models import MIXERS, flat_weights, loss_of, small_model
from tiny import plain_logits, plain_loss, tiny_trainer, untimed

from common import RunError
from experiments.row import training_cost
from models.flops import training_step_flops
from tasks.arithmetic import Arithmetic
from training.checkpoint import load_checkpoint, save_checkpoint
from training.data import BatchOrder, Layout
from training.trainer import Interrupted, TrainingStep, Validation, still_improving, validate

TASK = Arithmetic(2)


def measured(state):
    """The curve without seconds, which differ between runs."""
    return [(row.step, *untimed(row)) for row in state.curve]


def test_the_curves_loss_equals_the_plain_loss_of_the_batch(tmp_path):
    trainer = tiny_trainer(tmp_path, TASK, seed=3, steps=1, validate_every=1)
    model, sequences = small_model(TASK, seed=3), TASK.draw(0, 1, 0, 200)
    rows = BatchOrder(200, 16, seed=3).indices(0)
    expected = plain_loss([plain_logits(model, TASK, sequences, int(row)) for row in rows])
    assert trainer.fit().curve[0].train_loss == pytest.approx(expected)


def test_seconds_of_a_curve_row_include_its_own_step_and_validation(tmp_path, monkeypatch):
    trainer = tiny_trainer(tmp_path, TASK, steps=4, validate_every=2)
    now = [0.0]

    def lasting(seconds, function):
        def call(*given):
            now[0] += seconds
            return function(*given)

        return call

    trainer.clock = lambda: now[0]
    monkeypatch.setattr(trainer, "step", lasting(1, trainer.step))
    monkeypatch.setattr("training.trainer.validate", lasting(10, validate))
    state = trainer.fit()
    first, second = [(row.step, row.seconds) for row in state.curve]
    assert (first, second) == ((2, 11), (4, 23))  # without the first step, which compiles kernels
    assert state.seconds == 23


@pytest.mark.parametrize(
    "changes", [{"optimizer": "adamw"}, {"optimizer": "muon"}, {"average_decay": 0.9}], ids=str
)
@pytest.mark.parametrize("stop_after", [1, 10, 17])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, stop_after, changes):
    """With dropout, so that the random state matters, and also when stopped between validations."""
    changes = {**changes, "dropout": 0.2}
    torch.manual_seed(7)
    whole = tiny_trainer(tmp_path / "whole", TASK, **changes)
    torch.manual_seed(7)
    expected = whole.fit()
    first = tiny_trainer(tmp_path / "parts", TASK, **changes)
    first.should_stop = lambda: first.state.step == stop_after
    torch.manual_seed(7)
    with pytest.raises(Interrupted):
        first.fit()
    torch.manual_seed(12345)  # the random state of a new process
    second = tiny_trainer(tmp_path / "parts", TASK, **changes)
    assert measured(second.fit()) == measured(expected)
    assert torch.equal(flat_weights(whole.model), flat_weights(second.model))


def test_seconds_continue_after_a_resume_and_the_device_is_named_once(tmp_path):
    def trainer(begin, stop_at):
        """Its clock advances by a second per step."""
        own, now = tiny_trainer(tmp_path, TASK), itertools.count(begin)
        time = [next(now)]
        own.clock = lambda: time[0]
        own.should_stop = lambda: bool(time.__setitem__(0, next(now))) or own.state.step == stop_at
        return own

    with pytest.raises(Interrupted):
        trainer(5, 10).fit()
    state = trainer(100, None).fit()
    assert [row.seconds for row in state.curve] == [row.step - 1 for row in state.curve]
    assert len(state.devices) == 1


def test_a_killed_run_keeps_the_previous_checkpoint(tmp_path):
    kill = Mock(side_effect=[*6 * [False], KeyboardInterrupt])  # after the seventh step
    with pytest.raises(KeyboardInterrupt):
        tiny_trainer(tmp_path, TASK, checkpoint_seconds=1e-9, should_stop=kill).fit()
    assert load_checkpoint(tmp_path / "checkpoint.pt")["state"]["step"] == 6


def test_cost_of_training(tmp_path):
    """Two epochs of 200 sequences, without padding; the first validation to reach 90 % counts."""
    trainer = tiny_trainer(tmp_path, TASK, steps=26, validate_every=5)
    state = trainer.fit()
    lengths = TASK.draw(0, 1, 0, 200).lengths - 1  # EOS is not read
    epoch = sum(training_step_flops(trainer.model.flops(int(length))) for length in lengths)
    assert training_cost(trainer)["flops_training"] == 2 * epoch
    rows = zip(state.curve, (0.5, 0.89, 0.9, 0.4, 1.0, 1.0), strict=True)
    state.curve = [dataclasses.replace(r, validation_chain_exact_match=x) for r, x in rows]
    cost = training_cost(trainer)
    assert (cost["steps_to_90"], cost["steps"]) == (15, 26)
    assert cost["seconds_to_90"] == round(state.curve[2].seconds, 3)
    state.curve = state.curve[:2]
    assert training_cost(trainer)["steps_to_90"] is None


@pytest.mark.parametrize("size", [None, 2])
@pytest.mark.parametrize("mixer", MIXERS)
def test_a_step_has_the_clipped_gradient_of_the_padded_batch(tmp_path, mixer, size):
    """The optimiser is given the gradient of the mean loss, also in micro-batches."""
    task, clip = Arithmetic(3), 0.1
    trainer = tiny_trainer(tmp_path, task, mixer, micro_batch_size=size, gradient_clip=clip,
                           learning_rate=1e-9, steps=1, validate_every=1)  # fmt: skip
    trainer.layout = Layout(packed=True, max_tokens=100, size_step=8, width_step=4)
    trained, validated = recorded_sizes(trainer.train), recorded_sizes(trainer.validation)
    trainer.fit()
    assert (sum(trained), sum(validated)) == (16, 50)
    assert max(trained) == size or (size is None and max(trained) > 2)
    assert max(validated) == (size or 50)
    model = small_model(task, mixer).train()
    loss_of(model, trainer.train.batch(trainer.order.indices(0))).backward()
    assert torch.nn.utils.clip_grad_norm_(model.parameters(), clip) > 2 * clip
    for own, expected in zip(trainer.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(own.grad, expected.grad, rtol=1e-3, atol=1e-6)


def recorded_sizes(sequences):
    """The sizes, later, of the batches drawn from `sequences`."""
    sizes, batch = [], sequences.batch
    sequences.batch = lambda index, *layout: sizes.append(len(index)) or batch(index, *layout)
    return sizes


def test_dropout_acts_in_every_step_and_in_no_validation(tmp_path):
    trainer, seen = tiny_trainer(tmp_path, TASK, steps=4, validate_every=2, dropout=0.2), []
    trainer.model.dropout.register_forward_hook(lambda module, *_: seen.append(module.training))
    trainer.fit()
    assert seen == 2 * [True, True, False]


def test_the_average_is_over_the_weights_after_every_step(tmp_path):
    """Compared with the explicit recursion. Buffers are not averaged."""
    seen = []
    trainer = tiny_trainer(tmp_path, TASK, average_decay=0.8, steps=6)
    trainer.raw_model.sinusoids += 1
    trainer.should_stop = lambda: seen.append(copy.deepcopy(trainer.raw_model.state_dict()))
    trainer.fit()
    last = load_checkpoint(tmp_path / "checkpoint.pt")
    seen.append(last["raw_model"])
    assert len(seen) == 6
    for name, value in last["model"].items():
        expected = seen[0][name].double()
        for state in seen[1:]:
            expected = 0.8 * expected + 0.2 * state[name].double()
        torch.testing.assert_close(value.double(), expected, atol=1e-6, rtol=1e-5)
        assert torch.equal(trainer.model.state_dict()[name], value)
        assert torch.equal(trainer.raw_model.state_dict()[name], last["raw_model"][name])
    assert any(not torch.equal(last["model"][n], last["raw_model"][n]) for n in last["model"])
    assert torch.equal(trainer.model.sinusoids, trainer.raw_model.sinusoids)


def test_a_finished_run_is_not_trained_again(tmp_path):
    tiny_trainer(tmp_path, TASK).fit()
    again = tiny_trainer(tmp_path, TASK)
    again.train = None  # any step would fail
    assert again.fit().step == 30


def test_stops_when_the_average_solves_validation(tmp_path, monkeypatch):
    trainer = tiny_trainer(tmp_path, TASK, stop_at=0.98, average_decay=0.9)

    def solved(model, *others):
        assert model is trainer.model is not trainer.raw_model
        return 0.1, 0.97 if trainer.state.step < 20 else 0.98

    monkeypatch.setattr("training.trainer.validate", solved)
    state = trainer.fit()
    assert (state.step, state.stopped) == (20, "solved")


def test_a_damaged_checkpoint_is_set_aside_and_training_starts_again(tmp_path, capsys):
    whole = tiny_trainer(tmp_path, TASK)
    whole.fit()
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    again = tiny_trainer(tmp_path, TASK)
    again.fit()
    warning = capsys.readouterr().err
    assert "damaged checkpoint" in warning and "force=true" not in warning  # no action is needed
    assert path.with_suffix(".damaged").exists()
    assert torch.equal(flat_weights(whole.model), flat_weights(again.model))


def test_a_kill_between_digest_and_checkpoint_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, {"step": 1})
    monkeypatch.setattr("training.checkpoint.write_bytes", lambda *given: None)
    save_checkpoint(path, {"step": 2})
    assert load_checkpoint(path) == {"step": 1}
    assert len(path.with_suffix(".sha256").read_text().splitlines()) == 2


def test_listeners_receive_losses_and_curve_rows_and_the_curve_is_saved(tmp_path):
    heard = []
    state = tiny_trainer(tmp_path, TASK, listener=heard.append).fit()
    assert state.stopped == "budget"
    rates = [0.01 * (31 - step) / 28 for step in (10, 20, 30)]
    assert [row.learning_rate for row in state.curve] == pytest.approx(rates)
    assert [event for event in heard if isinstance(event, Validation)] == state.curve
    steps = [event for event in heard if isinstance(event, TrainingStep)]
    assert [(event.step, event.steps) for event in steps] == [(10, 30), (20, 30), (30, 30)]
    assert [event.loss for event in steps] == [row.train_loss for row in state.curve]
    assert json.dumps(load_checkpoint(tmp_path / "checkpoint.pt")["state"])
    lines = (tmp_path / "curve.csv").read_text().splitlines()
    assert lines[0].startswith("step,seconds,train_loss")
    assert [line.split(",")[0] for line in lines[1:]] == ["10", "20", "30"]
    assert not list(tmp_path.glob(".*"))  # no half-written files


@pytest.mark.parametrize(
    ("rows", "expected"),
    [([(800, 0.5), (1000, 0.53)], True), ([(800, 0.5), (1000, 0.52)], False),
     ([(799, 0.1), (801, 0.5), (1000, 0.5)], True), ([(800, 0.5), (1000, 0.4)], False),
     ([(500, 0.9), (800, 0.99), (1000, 1.0)], False), ([(1000, 0.3)], None), ([], None)],
)  # fmt: skip
def test_still_improving_is_a_rise_by_two_points_in_the_last_fifth(rows, expected):
    curve = [Validation(step, 0.0, 0.0, 0.0, share, 0.0) for step, share in rows]
    assert still_improving(curve) == expected


def test_bfloat16_trains_with_products_in_bfloat16(tmp_path):
    one, other = (
        tiny_trainer(tmp_path / precision, TASK, precision=precision, steps=1)
        for precision in ("float32", "bfloat16")
    )
    one.fit(), other.fit()
    apart = (flat_weights(one.model) - flat_weights(other.model)).abs().mean()
    assert 0 < apart < 1e-3  # a step is 1e-2


def test_checkpoints_are_checkpoint_seconds_apart(tmp_path, monkeypatch):
    trainer, saved = tiny_trainer(tmp_path, TASK, checkpoint_seconds=10), []
    monkeypatch.setattr("training.trainer.time.monotonic", lambda: trainer.state.step)
    monkeypatch.setattr(trainer, "save", lambda: saved.append(trainer.state.step))
    trainer.fit()
    assert saved == [11, 22, 30]


def test_a_validation_loss_that_is_not_finite_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("training.trainer.validate", lambda *_: (float("nan"), 0.0))
    with pytest.raises(RunError, match="validation loss nan at step 10"):
        tiny_trainer(tmp_path, TASK).fit()
