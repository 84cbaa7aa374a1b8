"""What the evaluation makes of every model, and of one that looks ahead."""

import pytest
import torch
from configured import model_of, names
from small_models import plain_greedy, written
from test_exact import LooksAhead

from common import UserError
from evaluation.generate import generate
from models.exact import require_causal
from models.transformer import Transformer
from tasks.arithmetic import Arithmetic
from tasks.lis import LIS


@pytest.mark.parametrize("name", names())
def test_exact_evaluation_writes_what_plain_greedy_decoding_does(name):
    task = Arithmetic(3)
    model = model_of(name, max_len=task.max_len, vocabulary=len(task.vocabulary))
    sequences = task.draw(0, 0, 0, 12)
    assert written(generate(model, sequences)) == plain_greedy(model, sequences)


def test_a_mixer_that_has_learned_to_look_ahead_is_not_measured():
    task = LIS(4)
    model = Transformer(len(task.vocabulary), task.max_len, 8, 1, 2, LooksAhead)
    torch.nn.init.zeros_(model.blocks[0].mixer.out.weight)
    require_causal(model)
    torch.nn.init.eye_(model.blocks[0].mixer.out.weight)
    with pytest.raises(UserError, match="looks ahead"):
        generate(model, task.draw(0, 0, 0, 3))
