"""Accuracies, their confidence interval and the chance level."""

from collections import Counter

import pytest
from scipy.stats import binomtest
from small_models import TASKS, plain_greedy, prepared

from evaluation.judge import chance_accuracy, evaluate


@pytest.mark.parametrize("steps", [0, 40, 150])
def test_accuracies_match_the_generated_tokens(steps):
    task, model = prepared("arithmetic", "standard", steps)
    sequences = task.draw(0, 1, 0, 60)
    result = evaluate(model, task, sequences)
    answers = chains = 0
    for row, tokens in enumerate(plain_greedy(model, sequences)):
        gold = sequences.tokens[row, : sequences.lengths[row]].tolist()
        chains += tokens == gold
        words = task.vocabulary.decode(tokens)
        right = task.vocabulary.decode(gold)[-2]
        answers += words[-1] == "<eos>" and words[-3:-1] == ["=", right]
    assert result.answer_accuracy == answers / 60
    assert result.chain_exact_match == chains / 60
    low, high = result.answer_accuracy_low, result.answer_accuracy_high
    assert (low, high) == binomtest(answers, 60).proportion_ci(method="wilson")
    assert result.n_test == 60


@pytest.mark.parametrize("task_name", TASKS)
def test_chance_is_the_share_of_the_most_frequent_answer(task_name):
    """Compared with the answers from `task.solve`."""
    task, model = prepared(task_name, "standard", 0)
    sequences = task.draw(0, 1, 0, 50)
    answers = Counter(tuple(task.solve(task.decode(sequences, row).prompt)[1]) for row in range(50))
    expected = answers.most_common(1)[0][1] / 50
    assert chance_accuracy(task, sequences) == expected
    assert evaluate(model, task, sequences).chance_accuracy == expected
    assert chance_accuracy(task, sequences.select(slice(0, 1))) == 1
