"""`model.mixers`: names become settings, layers take them in turn, and what is refused."""

import functools

import pytest
import torch

from common import UserError
from config.build import check_buildable
from config.compose import compose_plain, configurations_of
from config.identity import cell_name, weights_name
from config.schema import as_plain, validate_cell
from models.linear import LinearAttention

# Names of cells from before `model.mixers` existed: results that are stored bear them.
STORED = {"standard": "904fb1b88623", "sparse": "f4a751846ae0", "linear": "c903f1933541"}


def cell(*words):
    fixed = ["logger=none", "task=lis", "task.size=8", "recipe=fast", "seed=3"]
    return validate_cell(compose_plain("train", [*fixed, *words]))


@pytest.mark.parametrize("name", STORED)
def test_cells_of_one_mixer_keep_their_names(name):
    assert cell_name(cell(f"model={name}")) == STORED[name]


def test_names_become_the_settings_of_those_models():
    config = cell("model=hybrid", "model.mixers=[gla,standard]")
    assert config.model.mixers == [
        cell("model=gla").model.mixer,
        cell("model=standard").model.mixer,
    ]
    assert validate_cell(as_plain(config)) == config


def test_layers_take_them_in_turn():
    config = cell("model=hybrid", "model.mixers=[gla,standard,linear]", "model.num_layers=7")
    kinds = [type(block.mixer).__name__ for block in check_buildable(config)[1].blocks]
    one, two, three = "DecayedAttention", "StandardAttention", "LinearAttention"
    assert kinds == [one, two, three, one, two, three, one]


def test_a_list_of_one_is_that_mixer_everywhere():
    torch.manual_seed(0)
    alone, listed = cell("model=linear"), cell("model=hybrid", "model.mixers=[linear]")
    models = [check_buildable(config)[1] for config in (alone, listed)]
    costs = [(m.flops(9), m.state_bytes(9)) for m in models]
    assert costs[1][1] * 3 == costs[0][1] * 4  # four layers, three
    assert models[0].blocks[0].flops(9) == models[1].blocks[3].flops(9)


def test_costs_are_the_sums_over_layers():
    model = check_buildable(cell("model=hybrid"))[1]
    terms = model.flops(11)
    head = 2 * model.dim * model.vocab_size * 11
    assert sum(terms.values()) == head + sum(sum(b.flops(11).values()) for b in model.blocks)
    assert terms["mixing/scores"] == model.blocks[3].flops(11)["mixing/scores"]
    assert model.state_bytes(11) == sum(b.mixer.state_bytes(11) for b in model.blocks)


def test_the_order_and_the_settings_decide_the_name():
    words = ["[gla,standard]", "[standard,gla]", "[gla,linear]", "[gla,standard,standard]"]
    names = {weights_name(cell("model=hybrid", f"model.mixers={word}")) for word in words}
    assert len(names) == 4
    written_out = "[{_target_: models.standard.StandardAttention}]"
    same = [cell("model=hybrid", f"model.mixers={w}") for w in ("[standard]", written_out)]
    assert cell_name(same[0]) == cell_name(same[1])


def test_names_from_a_folder_beside_ours(tmp_path):
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "mine.yaml"
    path.write_text("name: mine\nmixer: {_target_: models.linear.LinearAttention, chunk_size: 7}\n")
    with configurations_of(str(tmp_path)):
        config = cell("model=hybrid", "model.mixers=[mine]")
    assert config.model.mixers == [{"_target_": "models.linear.LinearAttention", "chunk_size": 7}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.mixers=[linaer]"], "no model named 'linaer': there are .*did you mean linear"),
        (["model.mixers=[hybrid]"], "model hybrid has no mixer of its own"),
        (["model.mixers=[3]"], "model.mixers: 3 must be a model's name"),
        (["model.mixers=[{window: 3}]"], "{'window': 3} must be a model's name"),
        (["model.mixers=[]"], "model.mixers: 0 mixers; must be 1 to model.num_layers=4"),
        (["model.mixers=[gla,gla,gla]", "model.num_layers=2"], "3 mixers; must be 1 to .*=2"),
        (["model.mixers=gla"], "model.mixers='gla': must be a valid"),
        (["model.mixers=null"], "give model.mixer, model.mixers or model.construct, one of them"),
        (["+model.mixer={_target_: models.lstm.LSTM}"], "one of them"),
    ],
)
def test_what_is_no_list_of_mixers_is_refused(words, message):
    with pytest.raises(UserError, match=message) as refusal:
        cell("model=hybrid", *words)
    assert len(str(refusal.value).splitlines()) == 1


def test_a_wrong_parameter_is_named_by_its_place():
    mixers = "[gla,{_target_: models.sliding_window.SlidingWindow, windw: 3}]"
    with pytest.raises(UserError, match=r"unknown key model.mixers.1.windw; .*mean window"):
        check_buildable(cell("model=hybrid", f"model.mixers={mixers}"))


@pytest.mark.parametrize("error", [KeyError("b"), AttributeError("b"), AssertionError("b")])
def test_a_mixer_that_cannot_be_made_gets_one_line_with_the_models_name(error, monkeypatch):
    @functools.wraps(LinearAttention.__init__)
    def fails(*args, **kwargs):
        raise error

    monkeypatch.setattr(LinearAttention, "__init__", fails)
    with pytest.raises(UserError, match=f"^model linear: {type(error).__name__}: '?b'? ") as told:
        check_buildable(cell("model=linear"))
    assert told.value.__cause__ is error
