"""Building a model from the `model` group, and typing mistakes in it."""

import pytest
from configured import settings

from common import UserError
from models.build import ModelConfig, build_mixer, build_model
from models.linear import LinearAttention
from models.mixer import Mixer
from tasks.lis import LIS

TASK = LIS(8)
SIZES = {"dim": 16, "num_layers": 4, "num_heads": 2}


def config(**changes):
    return ModelConfig(**{"name": "mine", **SIZES, **changes})


def linear(**own):
    return {"_target_": "models.linear.LinearAttention", **own}


def test_sizes_come_from_the_group_and_the_task():
    model = build_model(config(mixer=linear(chunk_size=7), position="rope"), TASK, dropout=0.25)
    assert (model.dim, model.max_len, model.vocab_size) == (16, TASK.max_len, len(TASK.vocabulary))
    for block in model.blocks:
        assert isinstance(block.mixer, LinearAttention) and block.mixer.chunk_size == 7
        assert (block.mixer.position, block.mixer.dropout) == ("rope", 0.25)


def test_layers_cycle_through_the_mixers():
    mixers = [settings(name).mixer for name in ("gla", "standard", "linear")]
    model = build_model(config(mixers=mixers, num_layers=7), TASK)
    kinds = [type(block.mixer).__name__ for block in model.blocks]
    one, two, three = "DecayedAttention", "StandardAttention", "LinearAttention"
    assert kinds == [one, two, three, one, two, three, one]


class Headless(Mixer):
    def __init__(self, dim, max_len):
        super().__init__(dim, 1, max_len)


def test_a_mixer_takes_what_its_constructor_names():
    own, sizes = {"_target_": f"{__name__}.Headless"}, {"dim": 6, "num_heads": 4, "max_len": 9}
    assert build_mixer(own, **sizes, position="sinusoidal").head_dim == 6
    with pytest.raises(UserError, match="Headless takes no `position`"):
        build_mixer(own, **sizes, position="rope")


def test_an_error_inside_a_constructor_is_raised_unchanged(monkeypatch):
    monkeypatch.setattr("models.linear.CHUNK_SIZE", None)
    with pytest.raises(TypeError, match="NoneType"):
        build_model(config(mixer=linear()), TASK)
