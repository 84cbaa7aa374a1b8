import copy
import json
import shutil

import pytest
import torch
from tiny import figures, tiny_model, tiny_trainer

from common import RunError, UserError, sha256_of
from tasks.arithmetic import Arithmetic
from training.batches import SequenceTensors
from training.checkpoint import load_checkpoint, save_checkpoint
from training.events import TrainingStep, Validation
from training.loss import masked_loss
from training.trainer import Interrupted
from training.validation import validate

TASK = Arithmetic(2)


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def measured(state):
    """The curve without its seconds, which no two runs share."""
    return [(row.step, *figures(row)) for row in state.curve]


def test_loss_is_the_mean_over_chain_answer_and_eos_only():
    model = tiny_model(TASK).eval()
    batch = SequenceTensors(TASK.draw(0, 0, 0, 8)).batch(torch.arange(8))
    log_probabilities = model(batch.tokens[:, :-1]).log_softmax(-1)
    losses = [
        -log_probabilities[b, t, batch.tokens[b, t + 1]]
        for b, t in torch.nonzero(batch.loss_mask).tolist()
    ]
    assert masked_loss(model, batch).item() == pytest.approx(sum(losses).item() / len(losses))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_training_lowers_the_loss(tmp_path, optimizer):
    state = tiny_trainer(tmp_path, TASK, steps=60, optimizer=optimizer, learning_rate=3e-3).fit()
    assert state.curve[-1].validation_loss < 0.9 * state.curve[0].validation_loss
    assert state.stopped == "budget"


def test_same_seed_same_weights(tmp_path):
    one = tiny_trainer(tmp_path / "a", TASK, dropout=0.1)
    other = tiny_trainer(tmp_path / "b", TASK, dropout=0.1)
    different = tiny_trainer(tmp_path / "c", TASK, dropout=0.1, seed=1)
    for trainer in (one, other, different):
        torch.manual_seed(99)
        trainer.fit()
    assert torch.equal(weights(one), weights(other))
    assert not torch.equal(weights(one), weights(different))


def test_a_row_of_the_curve_has_the_seconds_of_its_own_step_and_validation(tmp_path, monkeypatch):
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
    assert [(row.step, row.seconds) for row in state.curve] == [(2, 12), (4, 24)]
    assert state.seconds == 24


@pytest.mark.parametrize(
    "changes", [{"optimizer": "adamw"}, {"optimizer": "muon"}, {"average_decay": 0.9}], ids=str
)
@pytest.mark.parametrize("stop_after", [1, 10, 17])
def test_an_interrupted_run_ends_as_an_uninterrupted_one(tmp_path, stop_after, changes):
    """Dropout on, so that the random generator's state matters; stops between validations too."""
    torch.manual_seed(7)
    whole = tiny_trainer(tmp_path / "whole", TASK, dropout=0.2, **changes)
    torch.manual_seed(7)
    expected = whole.fit()

    asked = iter(range(1, 1000))
    first = tiny_trainer(
        tmp_path / "parts",
        TASK,
        dropout=0.2,
        **changes,
        should_stop=lambda: next(asked) == stop_after,
    )
    torch.manual_seed(7)
    with pytest.raises(Interrupted):
        first.fit()
    torch.manual_seed(12345)  # what a new process happens to have
    second = tiny_trainer(tmp_path / "parts", TASK, dropout=0.2, **changes)
    state = second.fit()
    assert torch.equal(weights(whole), weights(second))
    assert measured(state) == measured(expected)


@pytest.mark.parametrize("size", [1, 5, 16, 100])
def test_a_batch_in_parts_is_the_same_batch(tmp_path, size):
    """Arithmetic mixes lengths, so that parts weigh differently; 200 sequences leave a rest."""
    task = Arithmetic(3)
    changes = {"learning_rate": 1e-3, "gradient_clip": 1.0, "steps": 20}
    whole = tiny_trainer(tmp_path / "whole", task, **changes).fit()
    trainer = tiny_trainer(tmp_path / "parts", task, micro_batch_size=size, **changes)
    validated, batch = [], trainer.run.validation.batch
    trainer.run.validation.batch = lambda index: validated.append(len(index)) or batch(index)
    held, packed = [], trainer.train.packed
    trainer.train.packed = lambda index, *step: held.append(len(index)) or packed(index, *step)
    for one, other in zip(whole.curve, trainer.fit().curve, strict=True):
        assert figures(one) == pytest.approx(figures(other), rel=1e-4)
    assert max(held) == min(size, 16)
    assert max(validated) == min(size, 50)
    assert sum(held) == sum(len(trainer.order.indices(step)) for step in range(20))


def test_the_average_is_that_of_the_weights_after_every_step(tmp_path):
    """Held against the recursion written out."""
    seen = []
    trainer = tiny_trainer(tmp_path, TASK, average_decay=0.8, steps=6)
    trainer.should_stop = lambda: seen.append(copy.deepcopy(trainer.model.state_dict()))
    trainer.fit()
    last = load_checkpoint(tmp_path / "checkpoint.pt")
    seen.append(last["trained"])
    assert len(seen) == 6
    for name, value in last["model"].items():
        expected = seen[0][name].double()
        for state in seen[1:]:
            expected = 0.8 * expected + 0.2 * state[name].double()
        torch.testing.assert_close(value.double(), expected, atol=1e-6, rtol=1e-5)
        assert torch.equal(trainer.model.state_dict()[name], value)
    assert any(not torch.equal(last["model"][n], last["trained"][n]) for n in last["model"])


def test_a_finished_run_is_not_trained_again(tmp_path):
    tiny_trainer(tmp_path, TASK).fit()
    again = tiny_trainer(tmp_path, TASK)
    again.train = None  # any step would fail
    assert again.fit().step == 30


def test_stops_when_validation_is_solved(tmp_path):
    state = tiny_trainer(tmp_path, TASK, stop_at=0.0).fit()
    assert (state.step, state.stopped) == (10, "solved")


def test_divergence_ends_with_a_reason(tmp_path):
    trainer = tiny_trainer(tmp_path, TASK, learning_rate=1e12, warmup=0.0, steps=200)
    with pytest.raises(RunError, match=r"diverged.*step"):
        trainer.fit()


def test_a_damaged_checkpoint_is_set_aside_and_training_starts_again(tmp_path, capsys):
    whole = tiny_trainer(tmp_path / "whole", TASK)
    whole.fit()
    folder = tmp_path / "hurt"
    tiny_trainer(folder, TASK).fit()
    content = (folder / "checkpoint.pt").read_bytes()
    (folder / "checkpoint.pt").write_bytes(content[: len(content) // 2])
    again = tiny_trainer(folder, TASK)
    again.fit()
    warning = capsys.readouterr().err
    assert "damaged checkpoint" in warning and "force=true" not in warning  # nothing is to be done
    assert (folder / "checkpoint.damaged").exists()
    assert torch.equal(weights(whole), weights(again))


def without_optimizer(content):
    del content["optimizer"]


def with_empty_optimizer(content):
    content["optimizer"] = []


def with_state(**values):
    return lambda content: content["state"].update(values)


def with_validation(**values):
    return lambda content: content["state"]["curve"][0].update(values)


def with_other_weights(content):
    name = next(iter(content["model"]))
    content["model"][name] = torch.zeros(3)


def without_weights(content):
    del content["model"]


def without_random_state(content):
    content["random"] = None


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (without_optimizer, "optimizer"),
        (with_empty_optimizer, "ValueError"),
        (with_state(step=-1), "state step"),
        (with_state(step=10**9), "1000000000 of 30"),
        (with_state(step=5), "after validations at"),
        (with_state(step="10"), "state step"),
        (with_state(seconds=float("nan")), "state seconds"),
        (with_state(stopped="tired"), "state stopped"),
        (with_state(stopped="solved"), "solved is not what its learning curve says"),
        (with_state(stopped="budget"), "budget is not what its learning curve says"),
        (with_state(step=25), "after validations at"),
        (with_state(mood="good"), "mood"),
        (with_state(curve=None), "state curve"),
        (with_validation(step=17), "after validations at"),
        (with_validation(learning_rate="high"), "learning_rate"),
        (with_other_weights, "RuntimeError"),
        (without_weights, "no weights"),
        (without_random_state, "AttributeError"),
    ],
)
def test_a_checkpoint_of_wrong_content_is_set_aside(tmp_path, capsys, damage, reason):
    """Dropout on: what was loaded before the fault was found must be undone, the generator too."""
    changes = {"dropout": 0.2, "optimizer": "muon"}
    torch.manual_seed(7)
    whole = tiny_trainer(tmp_path / "whole", TASK, **changes)
    whole.fit()
    path = tmp_path / "hurt" / "checkpoint.pt"
    stopped = tiny_trainer(path.parent, TASK, **changes)
    stopped.should_stop = lambda: stopped.state.step == 12
    with pytest.raises(Interrupted):
        stopped.fit()
    content = load_checkpoint(path)
    damage(content)
    save_checkpoint(path, content)
    torch.manual_seed(7)
    again = tiny_trainer(path.parent, TASK, **changes)
    assert again.fit().step == 30
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{path}: damaged checkpoint" in line and "set aside" in line and reason in line
    assert path.with_suffix(".damaged").exists()
    assert torch.equal(weights(whole), weights(again))


def first_tensor(part):
    while not isinstance(part, torch.Tensor):
        part = next(iter(part.values())) if isinstance(part, dict) else part[0]
    return part


@pytest.mark.parametrize("key", ["model", "optimizer", "random", "state"])
def test_one_flipped_bit_is_noticed_wherever_it_is(tmp_path, key):
    """The archive that torch writes is read without a check of its own."""
    tiny_trainer(tmp_path, TASK).fit()
    path = tmp_path / "checkpoint.pt"
    content = torch.load(path, weights_only=True)
    part = content[key]
    if key == "state":
        part["curve"][0]["train_loss"] += 2**-50
    else:
        first_tensor(part).view(-1).view(torch.uint8)[3] ^= 1
    torch.save(content, path)
    with pytest.raises(UserError, match="does not have its digest"):
        load_checkpoint(path)


def test_a_checkpoint_of_other_weights_is_named(tmp_path):
    for name in ("one", "other"):
        tiny_trainer(tmp_path / name, TASK).fit()
    shutil.copy(tmp_path / "other/checkpoint.pt", tmp_path / "one/checkpoint.pt")
    with pytest.raises(UserError, match="of the weights other, not of one"):
        load_checkpoint(tmp_path / "one/checkpoint.pt")


def test_a_checkpoint_without_digest_needs_the_word_of_its_record(tmp_path):
    """Of the version before: where training had ended, its record holds the file's digest."""
    tiny_trainer(tmp_path, TASK).fit()
    path = tmp_path / "checkpoint.pt"
    content = torch.load(path, weights_only=True)
    torch.save({**content, "format": 2, "digest": None, "weights": None}, path)
    with pytest.raises(UserError, match="not a checkpoint of this version"):
        load_checkpoint(path)
    assert load_checkpoint(path, sha256=sha256_of(path))["state"] == content["state"]
    with pytest.raises(UserError, match="damaged"):
        load_checkpoint(path, sha256="0" * 64)


def test_listeners_hear_losses_and_the_rows_of_the_curve(tmp_path):
    heard = []
    state = tiny_trainer(tmp_path, TASK, listener=heard.append).fit()
    assert [event for event in heard if isinstance(event, Validation)] == state.curve
    steps = [event for event in heard if isinstance(event, TrainingStep)]
    assert [(event.step, event.steps) for event in steps] == [(10, 30), (20, 30), (30, 30)]
    assert [event.loss for event in steps] == [row.train_loss for row in state.curve]


def test_checkpoint_is_plain_data_and_curve_has_a_row_per_validation(tmp_path):
    state = tiny_trainer(tmp_path, TASK).fit()
    content = load_checkpoint(tmp_path / "checkpoint.pt")
    assert json.dumps(content["state"])
    lines = (tmp_path / "curve.csv").read_text().splitlines()
    assert lines[0].startswith("step,seconds,train_loss")
    assert [line.split(",")[0] for line in lines[1:]] == ["10", "20", "30"]
    assert len(state.curve) == 3
    assert not list(tmp_path.glob("*.tmp")) and not list(tmp_path.glob(".*.tmp"))


def test_validation_counts_chains_without_a_wrong_argmax():
    model = tiny_model(TASK).eval()
    sequences = SequenceTensors(TASK.draw(0, 3, 0, 40))
    loss, exact = validate(model, sequences, "float32", batch_size=7)
    right = 0
    for i in range(40):
        batch = sequences.batch(torch.tensor([i]))
        choice = model(batch.tokens[:, :-1]).argmax(-1)
        right += bool((choice == batch.tokens[:, 1:])[batch.loss_mask].all())
    assert exact == right / 40
    assert loss > 0
