"""Predicted labels, compared with one float64 pass per sequence, and their accuracies."""

from collections import Counter

import numpy as np
import pytest
import torch
from small_models import MIXERS, lowest_of_tie, small_model, twin_model

import cotcost
from common import UserError
from evaluation.generate import Generation, first_difference, generate
from evaluation.judge import by_kind, evaluate, judge, where_chains_break, without_markers
from evaluation.state_format import StateRounding, parse_format
from models.mixer import Mixer
from models.transformer import Transformer
from tasks.closure import Closure
from tasks.lis import LIS
from tasks.sequences import EOS_ID, SequenceSet
from tasks.word import Word

TAGGED = [LIS(6, "tagged"), Word(6, "tagged", "S3", "all")]
ONLINE = [LIS(6, "online"), Word(6, "online", "S3", "all")]
WORD = TAGGED[1]


def each(tasks):
    return pytest.mark.parametrize("task", tasks, ids=lambda task: f"{task.name}-{task.format}")


@torch.no_grad()
def plain_labels(model, sequences):
    """One float64 forward pass per sequence."""
    exact, said = model.double().eval(), np.zeros_like(sequences.tokens)
    for row, length in enumerate(sequences.lengths):
        read = torch.from_numpy(sequences.tokens[row : row + 1, : length - 1].astype(int))
        said[row, 2:length] = lowest_of_tie(exact(read)[0, 1:].numpy())
    model.float()
    return said


@pytest.mark.parametrize("mixer", MIXERS)
@each(TAGGED + ONLINE)
def test_labels_equal_those_of_plain_passes(task, mixer):
    model, sequences = small_model(task, mixer), task.draw(0, 1, 0, 30)
    expected = plain_labels(model, sequences)
    for memory_mb in (1024, 0.01):
        assert (generate(model, sequences, memory_mb).tokens == expected).all()


@each([WORD, ONLINE[0], LIS(6)])
def test_tokens_or_labels_are_shown_with_the_correct_ones(task):
    sequences = task.draw(0, 1, 0, 30)
    gold = sequences.tokens if sequences.labels is None else sequences.labels
    said, correct = generate(small_model(task), sequences), np.full(30, -1)
    for generation in (said, Generation(gold, sequences.lengths, correct)):
        shown = list(cotcost.written(task, sequences, generation))
        judged = sequences, generation
        if task.format == "online":
            judged = without_markers(sequences, generation)
        right = judge(task, *judged)[1].tolist()
        assert [one.first_mistake is None for one in shown] == right
        for row, one in enumerate(shown):
            at = one.first_mistake
            if task.labelled:
                every = 2 if task.format == "online" else 1  # not the markers between labels
                assert one.right == task.vocabulary.decode(gold[row][gold[row] > 0][::every])
            else:
                example = task.decode(sequences, row)
                assert one.prompt == example.prompt
                assert one.right == [*example.chain, *example.answer]
            if at is None:
                assert one.tokens == one.right and one.answer == one.right[-1:]
            else:
                assert [*one.tokens, "end"][at] != [*one.right, "end"][at]
                assert one.tokens[:at] == one.right[:at]


class MeanOfAll(Mixer):
    """A mixer whose every output depends on every input."""

    def forward(self, x):
        return x.mean(1, keepdim=True).expand_as(x)


@pytest.mark.parametrize("state_format", [None, "float16"])
@pytest.mark.parametrize("format", ["cot", "tagged"])
def test_a_model_that_looks_ahead_is_rejected_by_every_kind_of_evaluation(format, state_format):
    task = LIS(6, format)
    model = Transformer(len(task.vocabulary), task.max_len, 16, 2, 2, MeanOfAll)
    rounding = StateRounding(parse_format(state_format), []) if state_format else None
    with pytest.raises(UserError, match="MeanOfAll looks ahead"):
        evaluate(model, task, task.draw(0, 1, 0, 20), rounding=rounding)


@pytest.mark.parametrize("perturbation", [0.0, 1e-12, -1e-12])
def test_ties_go_to_the_lowest_id_for_any_batch_size(perturbation):
    model, half = twin_model(WORD, "standard", perturbation)
    sequences = WORD.draw(0, 1, 0, 12)
    expected = plain_labels(model, sequences)
    assert not ((half <= expected) & (expected < 2 * half)).any()
    for memory_mb in (1024, 0.001):
        assert (generate(model, sequences, memory_mb).tokens == expected).all()


def as_generation(labels, gold):
    return Generation(labels, np.full(len(gold), gold.shape[1]), first_difference(labels, gold))


def test_a_predicted_end_is_shown_as_a_label():
    sequences = WORD.draw(0, 1, 0, 1)
    labels = sequences.labels.copy()
    labels[0, 3] = EOS_ID  # the second of the labels
    (one,) = cotcost.written(WORD, sequences, as_generation(labels, sequences.labels))
    assert one.first_mistake == 1 and len(one.tokens) == len(one.right) == 6


def test_judgement_of_labels_matches_a_manual_example():
    """Of 20 sequences, 18 have the first two labels right (90 %), 17 the last."""
    gold = np.array([[0, 0, 4, 5, 6]] * 20)
    said = [[4, 5, 6]] * 13 + [[4, 5, 7]] * 3 + [[4, 6, 6]] * 2 + [[5, 5, 6]] * 2
    sequences = SequenceSet(np.full((20, 5), 3), np.full(20, 5), np.full(20, 2), gold)
    labels = np.hstack([gold[:, :2], said])
    generation = as_generation(labels, gold)
    last_right, all_right = judge(WORD, sequences, generation)
    assert last_right.tolist() == [True] * 13 + [False] * 3 + [True] * 4
    assert all_right.tolist() == [True] * 13 + [False] * 7
    report = where_chains_break(sequences, generation)
    assert report["by_position"] == [[0, 2, 20], [1, 2, 18], [2, 3, 16]]
    assert report["longest_prefix"] == 2
    right = where_chains_break(sequences, as_generation(gold, gold))
    assert right["longest_prefix"] == 3 and right["by_position"][2] == [2, 0, 20]


def test_first_mistakes_are_counted_from_the_end_of_each_prompt():
    tokens, lengths = np.zeros((3, 7), int), np.array([7, 5, 6])
    sequences = SequenceSet(tokens, lengths, np.array([4, 2, 3]))
    report = where_chains_break(sequences, Generation(tokens, lengths, np.array([-1, 3, 3])))
    assert report == {"by_position": [[0, 1, 3], [1, 1, 2], [2, 0, 1]]}


@each(TAGGED)
def test_accuracies_match_the_labels(task):
    model, sequences = small_model(task), task.draw(0, 1, 0, 40)
    expected = plain_labels(model, sequences)
    result = evaluate(model, task, sequences)
    assert result.answer_accuracy == (expected[:, 7] == sequences.labels[:, 7]).mean()
    assert result.chain_exact_match == (expected == sequences.labels).all(1).mean()
    last = sequences.labels[:, 7].tolist()
    assert result.chance_accuracy == max(map(last.count, last)) / 40
    assert "by_kind" not in result.errors


@torch.no_grad()
def own_labels_fed_back(model, tokens):
    """Labels predicted for one online sequence when the model reads its own labels."""
    exact, text, said = model.double().eval(), [int(tokens[0])], []
    for letter in tokens[1:-1:2]:
        logits = exact(torch.tensor([[*text, int(letter)]]))[0, -1].numpy()
        said.append(int(lowest_of_tie(logits)))
        text += [int(letter), said[-1]]
    model.float()
    return said


@pytest.mark.parametrize("mixer", MIXERS)
@each(ONLINE)
def test_online_accuracy_counts_chains_with_only_correct_labels(task, mixer):
    sequences, model = task.draw(0, 1, 0, 30), small_model(task, mixer)
    for row, tokens in enumerate(sequences.tokens[:10]):  # make the model's labels the correct ones
        sequences.tokens[row, 2:-1:2] = own_labels_fed_back(model, tokens)[:-1]
        sequences.labels[row, 2::2] = own_labels_fed_back(model, tokens)
    rows = zip(sequences.tokens, sequences.labels[:, 2::2].tolist(), strict=True)
    right = [own_labels_fed_back(model, tokens) == labels for tokens, labels in rows]
    result = evaluate(model, task, sequences)
    assert result.answer_accuracy == result.chain_exact_match == np.mean(right)
    assert 0 < np.mean(right) < 1
    assert result.errors == where_chains_break(*without_markers(sequences, result.generation))
    chains = Counter(map(bytes, sequences.labels[:, 2::2]))
    assert result.chance_accuracy == max(chains.values()) / 30
    right = as_generation(sequences.labels, sequences.labels)
    best = where_chains_break(*without_markers(sequences, right))
    assert best["longest_prefix"] == len(best["by_position"]) == 6


def test_accuracy_by_kind_of_instance():
    task = Closure(6, "direct", "S3", r=2)
    sequences = task.draw(0, 1, 0, 40)
    right = np.arange(40) % 3 > 0
    kinds = [task.kind_names[kind] for kind in task.kinds(sequences)]
    good = [kind for kind, is_right in zip(kinds, right, strict=True) if is_right]
    expected = {kind: [good.count(kind), kinds.count(kind)] for kind in sorted(set(kinds))}
    assert by_kind(task, sequences, right) == expected
    assert len(expected) == 3
    counts = evaluate(small_model(task), task, sequences).errors["by_kind"]
    assert {kind: total for kind, (_, total) in counts.items()} == Counter(kinds)
    assert by_kind(LIS(6), LIS(6).draw(0, 1, 0, 3), np.ones(3, bool)) == {}
