"""Optimisers and weight averages against their definitions."""

import pytest
import torch
from small_models import small_model
from tiny import tiny_recipe, tiny_trainer

from models.mixer import Role
from tasks.arithmetic import Arithmetic
from training.optim import BatchedMuon, build_optimizers, set_learning_rate
from training.recipe import Rates, RoleRate

TASK = Arithmetic(2)
SHAPES = [(12, 4), (4, 4), (4, 12), (12, 4), (4, 4), (7, 7)]


def parameters():
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def update(optimizers, model, gradient, rate):
    """Take one step at this rate, with gradient(p) as the gradient of every parameter p."""
    set_learning_rate(optimizers, rate)
    for p in model.parameters():
        p.grad = gradient(p)
    for optimizer in optimizers:
        optimizer.step()


def muon(parameters, dtype=torch.float32, **options):
    """Muon over parameters that are one matrix each."""
    groups = []
    for shape in {p.shape for p in parameters}:
        own = [p for p in parameters if p.shape == shape]
        groups.append({"params": own, "parts": [1] * len(own), **options})
    return BatchedMuon(groups, dtype)


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 0.02), (torch.bfloat16, 0.01)])
def test_updates_match_torch_optim_muon(weight_decay, dtype, tolerance):
    """The tolerance is large because PyTorch orthogonalises in bfloat16."""
    ours, theirs = parameters(), parameters()
    batched = muon(ours, lr=0.01, weight_decay=weight_decay, dtype=dtype)
    reference = torch.optim.Muon(
        theirs, lr=0.01, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"
    )
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = one.grad.clone()
        batched.step()
        reference.step()
    for one, other, start in zip(ours, theirs, parameters(), strict=True):
        moved = (other - start).norm()
        assert (one - other).norm() < tolerance * moved


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_stacked_matrices_are_orthogonalised_separately(decay):
    """A parameter with three parts is updated like three parameters, others as a whole."""
    torch.manual_seed(2)
    *stacked, whole = (torch.nn.Parameter(torch.randn(12, 4)) for _ in range(3))
    apart = [torch.nn.Parameter(m.clone()) for p in stacked for m in p.detach().chunk(3)]
    alone = torch.nn.Parameter(whole.detach().clone())
    groups = [{"params": stacked, "parts": [3, 3]}, {"params": [whole], "parts": [1]}]
    ours = BatchedMuon([{**group, "lr": 0.01, "weight_decay": decay} for group in groups])
    theirs = muon([*apart, alone], lr=0.01, weight_decay=decay)
    for _ in range(3):
        for p in (*stacked, whole):
            p.grad = torch.randn_like(p)
        gradients = [matrix for p in stacked for matrix in p.grad.chunk(3)]
        for p, gradient in zip(apart, gradients, strict=True):
            p.grad = gradient.clone()
        alone.grad = whole.grad.clone()
        ours.step()
        theirs.step()
    torch.testing.assert_close(torch.cat(apart), torch.cat(stacked))
    torch.testing.assert_close(alone, whole)


def test_a_parameter_without_a_gradient_is_not_updated():
    one, other = parameters()[0], parameters()[0]
    before = one.detach().clone()
    other.grad = torch.ones_like(other)
    muon([one, other], lr=0.1, weight_decay=0.0).step()
    assert torch.equal(one, before) and not torch.equal(other, before)


def test_adamw_matches_its_equations():
    """Decoupled weight decay, bias-corrected moments (Loshchilov and Hutter 2019, algorithm 2)."""
    recipe = tiny_recipe(optimizer="adamw", weight_decay=0.1, betas=[0.9, 0.95])
    model = small_model(TASK)
    expected = [p.detach().double() for p in model.parameters()]
    first, second = ([torch.zeros_like(p) for p in expected] for _ in range(2))
    optimizers = build_optimizers(model, recipe)
    for step in range(1, 4):
        rate = 0.01 * step
        update(optimizers, model, torch.randn_like, rate)
        for p, e, m, v in zip(model.parameters(), expected, first, second, strict=True):
            gradient = p.grad.double()
            m.mul_(0.9).add_(0.1 * gradient)
            v.mul_(0.95).add_(0.05 * gradient**2)
            corrected = m / (1 - 0.9**step) / ((v / (1 - 0.95**step)).sqrt() + 1e-8)
            e.sub_(rate * (corrected + 0.1 * e))
    for p, e in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.detach().double(), e, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_muon_orthogonalises_in_the_recipes_precision(tmp_path, precision):
    trainer = tiny_trainer(tmp_path, TASK, optimizer="muon", precision=precision)
    muon = trainer.optimizers[0]
    assert muon.dtype == getattr(torch, precision)
    trainer.fit()
    for held in muon.state.values():
        assert held["momentum"].dtype == torch.float32
    assert all(p.dtype == torch.float32 for p in trainer.model.parameters())


RATES = Rates(RoleRate(0.5, 0.5), RoleRate(2.0), RoleRate(1.0, 1.0), RoleRate(3.0))
BOTH = pytest.mark.parametrize("name", ["adamw", "muon"])


@BOTH
def test_every_role_has_its_own_rate_and_stacked_matrices_their_parts(name):
    model = small_model(TASK, dim=32)
    recipe = tiny_recipe(optimizer=name, rates=RATES, reference_dim=16, betas=[0.8, 0.9])
    optimizers = build_optimizers(model, recipe)
    set_learning_rate(optimizers, 0.01)
    wanted = {"hidden": 0.01 * 0.5 * 0.5**0.5, "embedding": 0.02, "head": 0.005, "vector": 0.03}
    for parameter_name, role in model.parameter_roles().items():
        parameter = model.get_parameter(parameter_name)
        ((owner, group),) = [(part, group) for part in optimizers for group in part.param_groups
                             if any(p is parameter for p in group["params"])]  # fmt: skip
        assert group["lr"] == pytest.approx(wanted[role.kind])
        assert isinstance(owner, BatchedMuon) or group["betas"] == (0.8, 0.9)
        assert isinstance(owner, BatchedMuon) == (name == "muon" and role.kind == "hidden")
        if isinstance(owner, BatchedMuon):
            places = [i for i, p in enumerate(group["params"]) if p is parameter]
            assert [group["parts"][i] for i in places] == [role.parts]
            assert role.parts == (3 if "qkv" in parameter_name else 1)


def left_by_decay(model, recipe, rate):
    """The fraction of every parameter that is left after a step with gradient 0."""
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(1.0)
    update(build_optimizers(model, recipe), model, torch.zeros_like, rate)
    return {name: p.detach().double().mean().item() for name, p in model.named_parameters()}


@BOTH
@pytest.mark.parametrize("decay_vectors", [False, True])
@pytest.mark.parametrize("peak", [0.01, 0.1])
def test_independent_decay_follows_only_the_schedule(name, decay_vectors, peak):
    """At half of any peak rate, every decaying role loses half of weight_decay."""
    model = small_model(TASK)
    recipe = tiny_recipe(
        optimizer=name, rates=RATES, learning_rate=peak, weight_decay=0.02,
        decay="independent", decay_vectors=decay_vectors,
    )  # fmt: skip
    left = left_by_decay(model, recipe, peak / 2)
    for parameter, role in model.parameter_roles().items():
        decays = decay_vectors or role.kind != "vector"
        assert left[parameter] == pytest.approx(0.99 if decays else 1.0, abs=1e-6), parameter


@BOTH
def test_coupled_decay_is_the_rate_times_weight_decay(name):
    model = small_model(TASK)
    left = left_by_decay(model, tiny_recipe(optimizer=name, rates=RATES, weight_decay=0.1), 0.01)
    # The head's rate is 64 / D = 4 times that of the recipe, the rate of vectors 3 times.
    assert left["head.weight"] == pytest.approx(1 - 0.01 * 4 * 0.1, abs=1e-6)
    assert left["head.bias"] == pytest.approx(1 - 0.01 * 3 * 0.1, abs=1e-6)


def of_roles(**roles):
    """A model whose parameters are 4 x 4 matrices of ones."""
    model = torch.nn.ParameterDict({name: torch.ones(4, 4) for name in roles})
    model.dim, model.parameter_roles = 4, lambda: roles
    return model


@BOTH
def test_a_role_can_be_exempt_from_decay(name):
    model = of_roles(kept=Role("hidden", decays=False), decayed=Role("hidden"))
    left = left_by_decay(model, tiny_recipe(optimizer=name, weight_decay=0.1), 0.1)
    assert left == {"kept": 1.0, "decayed": pytest.approx(0.99)}


def test_muon_without_hidden_matrices_is_adamw():
    model = of_roles(vector=Role("vector"))
    optimizers = build_optimizers(model, tiny_recipe(optimizer="muon"))
    update(optimizers, model, torch.ones_like, 0.1)
    assert [type(part) for part in optimizers] == [torch.optim.AdamW]
    assert (model["vector"] < 1).all()


def test_frozen_parameters_are_left_alone():
    model = small_model(TASK)
    model.embedding.weight.requires_grad_(False)
    optimizers = build_optimizers(model, tiny_recipe(optimizer="muon"))
    held = [p for part in optimizers for group in part.param_groups for p in group["params"]]
    assert len(held) == len(list(model.parameters())) - 1
    assert not any(p is model.embedding.weight for p in held)
