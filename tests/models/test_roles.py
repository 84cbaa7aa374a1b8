"""Parameter roles: defaults, roles declared by mixers, errors."""

import dataclasses
import functools
import json

import pytest
import torch
from comparing import transformer
from configured import settings
from processes import ROOT
from torch import nn

from common import UserError
from models.build import build_model
from models.decayed import DecayedAttention
from models.delta import DeltaRule
from models.mixer import Mixer, Role
from tasks.arithmetic import Arithmetic

MODELS = json.loads((ROOT / "tests" / "golden.json").read_text())["flops"]  # those in conf
RATES = {"decay.A_log", "decay.dt.bias"}


class StateSpace(Mixer):
    """Parameters like those of third-party mixers, with their own initial values."""

    stated: dict = {}  # noqa: RUF012

    def __init__(self, dim, num_heads, max_len, dropout=0.0, position="none"):
        super().__init__(dim, num_heads, max_len, dropout, position)
        self.A_log = nn.Parameter(torch.arange(1.0, dim + 1).log().repeat(2, 1))
        self.dt = nn.Linear(dim, dim)
        self.conv = nn.Conv1d(dim, dim, 4, groups=dim)
        self.mix = nn.Parameter(torch.full((2 * dim, dim), 0.25))
        nn.init.constant_(self.dt.weight, 0.5)
        nn.init.constant_(self.dt.bias, -4.6)

    def forward(self, x):
        return self.dt(x) * self.A_log.sum(0) + x @ self.mix[: self.dim]

    def parameter_roles(self):
        return self.stated


def test_a_third_party_mixer_keeps_its_initial_values():
    for block in transformer(StateSpace).blocks:
        own = dict(block.mixer.named_parameters())
        torch.testing.assert_close(own["A_log"].exp()[1], torch.arange(1.0, 9.0))
        assert (own["dt.bias"] == -4.6).all() and (own["dt.weight"] == 0.5).all()
        assert (own["mix"] == 0.25).all()
        assert own["conv.bias"].any()  # PyTorch's own initial values, not zeros


def test_roles_of_standard_attention():
    model = transformer()
    roles = model.parameter_roles()
    assert list(roles) == [name for name, _ in model.named_parameters()]
    hidden = {name for name, role in roles.items() if role.kind == "hidden"}
    matrices = [f"{name}.weight" for name in ("mixer.qkv", "mixer.out", "ffn.0", "ffn.2")]
    assert hidden == {f"blocks.{block}.{name}" for block in (0, 1) for name in matrices}
    assert (roles["embedding.weight"].kind, roles["head.weight"].kind) == ("embedding", "head")
    others = set(roles) - hidden - {"embedding.weight", "head.weight"}
    assert {roles[name] for name in others} == {Role("vector")}
    assert all("norm" in name or name.endswith("bias") for name in others)


def test_by_default_only_weights_of_linear_layers_are_hidden():
    roles = transformer(StateSpace).parameter_roles()
    kinds = {name.split("mixer.")[1]: r.kind for name, r in roles.items() if "mixer." in name}
    vectors = "A_log", "mix", "dt.bias", "conv.weight", "conv.bias"
    assert kinds == {"dt.weight": "hidden", **dict.fromkeys(vectors, "vector")}


@pytest.mark.parametrize("name", MODELS)
def test_every_matrix_is_xavier_uniform_and_every_bias_zero(name):
    """Each of the matrices that a parameter stacks by its role, as Muon sees them."""
    model = build_model(dataclasses.replace(settings(name), dim=64), Arithmetic(3))
    for key, role in model.parameter_roles().items():
        if "decay.dt" in key or "lstm.bias_ih" in key:
            continue  # as published
        parameter = model.get_parameter(key)
        if role.kind == "vector":
            if key.split(".")[-1].startswith("bias") or "norm" in key:
                assert (parameter == ("norm" in key and key.endswith("weight"))).all(), key
            continue
        for matrix in parameter.chunk(role.parts):
            bound = (6 / sum(matrix.shape)) ** 0.5
            assert 0.95 * bound < matrix.abs().max() <= bound, key
            assert matrix.std().item() == pytest.approx(bound / 3**0.5, rel=0.1), key


@pytest.mark.parametrize(
    ("mixer", "exempt"),
    [(functools.partial(DeltaRule, forget_gate=True), RATES), (DecayedAttention, set()),
     (functools.partial(DecayedAttention, decay="head"), {*RATES, "skip"})],
)  # fmt: skip
def test_rates_of_forgetting_have_no_weight_decay(mixer, exempt):
    roles = mixer(16, 2, 20).parameter_roles()
    assert {name for name, role in roles.items() if not role.decays} == exempt


def test_a_role_without_a_parameter_is_rejected(monkeypatch):
    monkeypatch.setattr(StateSpace, "stated", {"B_log": Role("vector")})
    with pytest.raises(UserError, match="parameter_roles: 'B_log' is not a parameter"):
        transformer(StateSpace).parameter_roles()
