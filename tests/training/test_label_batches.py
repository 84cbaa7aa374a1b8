"""Labels in batches, loss and validation, each against a loop over single sequences."""

import numpy as np
import pytest
import torch
from tiny import MIXERS, tiny_model, tiny_trainer
from torch.nn import functional as F

from tasks.lis import LIS
from tasks.word import Word
from training.batches import SequenceTensors
from training.loss import masked_loss, packed_loss
from training.validation import validate

TASKS = [LIS(6, "tagged"), Word(6, "tagged", "S3", "all")]


def plain_logits(model, task, sequences, row):
    """Logits at the labelled tokens of one sequence (n, V), and its labels (n,)."""
    example = task.decode(sequences, row)
    read = torch.from_numpy(task.vocabulary.encode(["<sep>", *example.prompt[:-1]]).astype(int))
    labels = torch.from_numpy(task.vocabulary.encode(example.answer).astype(int))
    with torch.no_grad():
        return model(read[None])[0, 1:], labels


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_batches_hold_labels_as_targets(task):
    sequences = task.draw(0, 7, 0, 20)
    tensors = SequenceTensors(sequences)
    batch = tensors.batch(torch.tensor([3, 11]))
    for row, i in enumerate((3, 11)):
        example = task.decode(sequences, i)
        counted = batch.targets[row][batch.loss_mask[row]].tolist()
        assert task.vocabulary.decode(counted) == example.answer
        assert not batch.loss_mask[row, 0]
    assert tensors.num_targets(torch.tensor([3, 11])) == 12
    packed = tensors.packed(torch.tensor([3, 11]))
    assert packed.targets.tolist() == batch.at_targets(batch.targets).tolist()


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_loss_is_the_mean_over_all_labels(task, mixer):
    sequences, model = task.draw(0, 7, 0, 9), tiny_model(task, mixer).eval()
    tensors = SequenceTensors(sequences)
    found = [plain_logits(model, task, sequences, row) for row in range(9)]
    expected = F.cross_entropy(*map(torch.cat, zip(*found, strict=True)))
    padded = masked_loss(model, tensors.batch(torch.arange(9))).item()
    packed = packed_loss(model, tensors.packed(torch.arange(9))).item()
    assert [padded, packed] == pytest.approx([expected.item()] * 2, rel=1e-5)


def test_validation_counts_sequences_whose_every_label_is_right(tmp_path):
    task = Word(4, "tagged", "S3")
    trainer = tiny_trainer(tmp_path, task, steps=60)
    trainer.fit()
    sequences, model = task.draw(0, 2, 0, 50), trainer.evaluated.eval()
    loss, exact = validate(model, SequenceTensors(sequences), "float32")
    found = [plain_logits(model, task, sequences, row) for row in range(50)]
    right = [bool((logits.argmax(-1) == labels).all()) for logits, labels in found]
    assert exact == np.mean(right)
    assert 0 < np.mean(right) < 1
    assert loss == pytest.approx(float(F.cross_entropy(*map(torch.cat, zip(*found, strict=True)))))
