"""Every conf/model/*.yaml, found by itself, held to what a mixer promises (`models.mixer`).

`pytest tests/models/test_every_model.py --config-dir=DIR -k NAME` holds DIR/model/NAME.yaml to it.
The plain form of a mixer in models/NAME.py is `mix` in tests/models/reference/NAME.py; one from
elsewhere may have `mix` beside it. Tolerances are relative to the largest magnitude: float64 leaves
1e-9 after sums of 70 terms, float32 1e-4; under autocast to bfloat16 (2^-8) some ten roundings
leave up to 10 % of a gradient (gated_delta_net 8 %, most others 2 %).
"""

import copy
import functools
import importlib
import sys

import numpy as np
import pytest
import torch
from configured import CONF_DIR, LONGEST, VOCABULARY, mixers_of, model_of, names
from mixer_cases import assert_close
from small_models import held_bytes
from test_generation import FLOAT32, bytes_in_use, generate

from common import UserError
from models import flops
from models.build import parameters_of
from models.exact import exact_copy, require_causal, require_exact
from models.mixer import POSITIONS, Mixer, with_stated_roles
from models.packing import Packing

LENGTHS = [1, 7, 32, 70]
NAMES = names()


def takes_rope(name):
    """Whether every mixer of the model has something that position="rope" turns."""
    return all(mixer.takes_rope for mixer in mixers_of(name))


def plain_form(mixer):
    """`mix` of the mixer's reference module."""
    package, _, module = type(mixer).__module__.rpartition(".")
    if package != "models":
        return plain_form_beside(mixer)
    return functools.partial(importlib.import_module(f"tests.models.reference.{module}").mix, mixer)


def plain_form_beside(mixer):
    """`mix` of the module of a mixer that is not ours."""
    mix = getattr(sys.modules[type(mixer).__module__], "mix", None)
    if mix is None:
        pytest.skip(f"{type(mixer).__module__} has no plain form mix(mixer, x) to compare with")
    return functools.partial(mix, mixer)


def output_and_gradients(function, mixer, x, direction):
    """function(x), and the gradients of its product with `direction`: of x, of all parameters."""
    x = x.detach().clone().requires_grad_()
    y = function(x)
    leaves = [x, *mixer.parameters()]  # of a single token, decays are without effect
    gradients = torch.autograd.grad((y * direction).sum(), leaves, materialize_grads=True)
    return [y.detach(), *gradients]


def compare(mixer, x, tolerance):
    """The mixer in its own type against its plain form in float64."""
    direction = torch.randn(x.shape).to(x.dtype)
    found = output_and_gradients(mixer, mixer, x, direction)
    exact = copy.deepcopy(mixer).double()
    wanted = output_and_gradients(plain_form(exact), exact, x.double(), direction.double())
    assert_close(found, wanted, tolerance)


every = pytest.mark.parametrize("name", NAMES)


def test_the_files_are_found():
    assert {"standard", "sparse", "linear"} <= set(NAMES)


def test_the_controls_alone_refuse_rotary_positions():
    ours = [name for name in NAMES if (CONF_DIR / "model" / f"{name}.yaml").is_file()]
    assert {name for name in ours if not takes_rope(name)} == {"lstm", "running_mean"}


@every
@pytest.mark.parametrize("length", LENGTHS)
def test_output_and_gradients_equal_the_plain_form(name, length):
    for mixer in mixers_of(name):
        compare(mixer.double(), torch.randn(2, length, 16, dtype=torch.float64), 1e-9)


@every
def test_output_and_gradients_in_float32(name):
    for mixer in mixers_of(name):
        compare(mixer, torch.randn(2, 33, 16), 1e-4)


@every
def test_rotary_positions(name):
    """Sines and cosines are kept in float32."""
    if not takes_rope(name):
        with pytest.raises(UserError, match=r"^position=rope: .* use sinusoidal or none"):
            model_of(name, position="rope")
        return
    for mixer in mixers_of(name, position="rope"):
        compare(mixer.double(), torch.randn(2, 33, 16, dtype=torch.float64), 1e-6)


@every
def test_tokens_of_extreme_size(name):
    """Gates, weights and features near 0 and 1: right in float64, finite in float32."""
    size = 10 ** torch.linspace(-2, 1.5, 41)[torch.randperm(41)][:, None]
    x = size * torch.randn(2, 41, 16)
    for mixer in mixers_of(name):
        found = output_and_gradients(mixer, mixer, x, torch.ones_like(x))
        assert all(part.isfinite().all() for part in found)
        compare(mixer.double(), x.double(), 1e-8)


@every
def test_bf16_is_near_float32(name):
    """At the middle of seven inputs: where a head's sums are near 0 before their norm, it turns the
    rounding of q and k into any error at all.  Of 100 inputs some 10 have a gradient more than 10 %
    off (RetNet, GLA, Mamba-2), nearly always at the token with the smallest such sums."""
    for mixer in mixers_of(name):
        worst = [bf16_error(mixer, torch.randn(2, 33, 16)) for _ in range(7)]
        assert sorted(worst)[3] < 0.1


def bf16_error(mixer, x):
    """The largest error under autocast of output and gradients, each relative to its largest."""
    exact = output_and_gradients(mixer, mixer, x, torch.ones_like(x))
    with torch.autocast("cpu", torch.bfloat16):
        found = output_and_gradients(mixer, mixer, x, torch.ones_like(x))
    pairs = list(zip(found, exact, strict=True))
    assert all(rounded.isfinite().all() for rounded, _ in pairs)
    errors = [(rounded - wanted).abs().max() for rounded, wanted in pairs]
    scales = [wanted.abs().max().clamp(min=1) for _, wanted in pairs]
    return max(float(error / scale) for error, scale in zip(errors, scales, strict=True))


@torch.no_grad()
@every
def test_the_future_changes_nothing(name):
    x = torch.randn(1, 40, 16)
    for mixer in mixers_of(name):
        before = mixer(x)
        for t in (0, 6, 7, 8, 31, 38):
            changed = torch.cat((x[:, : t + 1], torch.randn(1, 39 - t, 16)), dim=1)
            after = mixer(changed)
            torch.testing.assert_close(after[:, : t + 1], before[:, : t + 1], rtol=1e-5, atol=1e-6)
            assert not torch.allclose(after[:, t + 1], before[:, t + 1])


@torch.no_grad()
@every
@pytest.mark.parametrize("position", POSITIONS)
def test_generation_equals_reading_the_prefix_again(name, position):
    """Prompts of unlike lengths, rows that leave and change places."""
    if position == "rope" and not takes_rope(name):
        pytest.skip("refused, as test_rotary_positions sees")
    model = model_of(name, position, max_len=41).eval()
    tokens = torch.randint(0, VOCABULARY, (5, 41))
    lengths = torch.tensor([1, 7, 8, 9, 33])
    full, reached = model(tokens), 0
    for ids, positions, logits, _ in generate(model, tokens, lengths, turn_every=5):
        torch.testing.assert_close(logits, full[ids, positions], **FLOAT32)
        reached += len(ids)
    assert reached == (41 - lengths + 1).sum()


@torch.no_grad()
@every
def test_generation_in_bf16(name):
    model = model_of(name, max_len=41).eval()
    tokens = torch.randint(0, VOCABULARY, (3, 41))
    with torch.autocast("cpu", torch.bfloat16):
        full = model(tokens).float()
        for ids, positions, logits, _ in generate(model, tokens, torch.tensor([1, 8, 13])):
            worst = (logits.float() - full[ids, positions]).abs().max()
            assert worst < 0.1 * full.abs().max()


@torch.no_grad()
@every
def test_padding_of_prompts_changes_nothing(name):
    model = model_of(name).eval()
    tokens, lengths = torch.randint(0, VOCABULARY, (3, 20)), torch.tensor([4, 20, 11])
    other = torch.where(torch.arange(20) < lengths[:, None], tokens, 0)
    outputs = []
    for prompt in (tokens, other):
        logits, state = model.prefill(prompt, lengths)
        outputs.append(torch.stack((logits, model.step(torch.tensor([1, 2, 3]), lengths, state))))
    assert torch.equal(*outputs)


@torch.no_grad()
@every
def test_selected_rows_may_repeat(name):
    model = model_of(name).eval()
    tokens, lengths = torch.randint(0, VOCABULARY, (3, 12)), torch.tensor([5, 12, 9])
    state = model.prefill(tokens, lengths)[1]
    rows = torch.tensor([2, 2, 0])
    twice = model.step(torch.tensor([4, 4, 7]), lengths[rows], model.select(state, rows))
    once = model.step(torch.tensor([7, 1, 4]), lengths, state)
    torch.testing.assert_close(twice[0], twice[1], **FLOAT32)  # products round by their row
    torch.testing.assert_close(twice[1:], once[[2, 0]], **FLOAT32)


@torch.no_grad()
@every
@pytest.mark.parametrize("prompt", [1, 20])
def test_state_bytes_equal_the_bytes_held(name, prompt):
    """All of a state of constant size, the written slots of one that grows."""
    model = model_of(name, max_len=41).eval()
    tokens = torch.randint(0, VOCABULARY, (1, 41))
    mixers = [block.mixer for block in model.blocks]
    for _, positions, _, state in generate(model, tokens, torch.tensor([prompt])):
        length = int(positions[0]) + 1
        for mixer, layer in zip(mixers, state, strict=True):
            constant = mixer.state_bytes(1) == mixer.state_bytes(41)
            used = sum(map(bytes_in_use, caches(layer)))
            assert mixer.state_bytes(length) == (held_bytes(layer) if constant else used)
    assert model.state_bytes(41) == sum(held_bytes(layer) for layer in state)


def caches(layer):
    """A state's numbers; the inputs that the default `step` keeps, as a cache of one head."""
    held = {key: own for key, own in layer.tensors.items() if own.is_floating_point()}
    return [own[:, None] if key == "inputs" else own for key, own in held.items()]


@every
@pytest.mark.parametrize("length", [1, 9, 70])
def test_flops_of_linear_layers_are_those_of_the_hidden_matrices(name, length):
    """Every weight matrix meets every token once: 2 FLOPs a weight."""
    for mixer in mixers_of(name):
        roles = with_stated_roles(mixer, mixer.parameter_roles())
        hidden = [w for key, w in mixer.named_parameters() if roles[key].kind == "hidden"]
        expected = 2 * sum(w.numel() for w in hidden) * length
        assert flops.linear_layer_flops(mixer.flops(length)) == expected


@every
def test_flops_are_named_and_add_up_step_by_step(name):
    """Mixing is counted; a sequence costs as much token by token, where there is a `step`."""
    for mixer in mixers_of(name):
        terms = mixer.flops(33)
        assert {term.split("/")[0] for term in terms} <= {"linear", "mixing"}
        assert all(count > 0 for count in terms.values())
        assert any(term.startswith("mixing/") for term in terms)
        if type(mixer).step is Mixer.step:
            assert mixer.step_flops(32) == sum(terms.values())
        else:
            assert sum(terms.values()) == sum(mixer.step_flops(t) for t in range(33))


@every
def test_a_constant_state_costs_constant_time_a_token(name):
    for mixer in mixers_of(name):
        if mixer.state_bytes(1) == mixer.state_bytes(LONGEST):
            assert mixer.step_flops(0) == mixer.step_flops(LONGEST - 1)
            assert sum(mixer.flops(66).values()) == 2 * sum(mixer.flops(33).values())


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_packed_sequences_equal_padded_ones(name, dtype):
    packing = Packing(np.array([1, 2, 3, 9, 17, 32, 33, 60]), 8, 4, LONGEST)
    x = torch.randn(packing.size, 16, dtype=dtype)
    for mixer in mixers_of(name):
        mixer = mixer.to(dtype)
        found = mixer.forward_packed(x, packing)
        assert found.shape == x.shape and found.dtype == dtype
        for start, end in zip(packing.offsets, packing.offsets[1:], strict=False):
            alone = mixer(x[None, start:end])
            assert_close([found[None, start:end]], [alone], 1e-5)


@every
def test_every_parameter_learns_and_has_a_role(name):
    model = model_of(name, dropout=0.1).train()
    tokens = torch.randint(0, VOCABULARY, (4, 20))
    logits = model(tokens)[:, :-1].flatten(0, 1)
    torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten()).backward()
    roles = model.parameter_roles()
    for key, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all() and parameter.grad.any(), key
        assert key in roles


@every
def test_weights_depend_on_the_seed_alone_and_are_all_that_is_saved(name):
    model = model_of(name)
    assert set(model.state_dict()) == {key for key, _ in model.named_parameters()}
    again, longer, other = model_of(name), model_of(name, max_len=140), model_of(name, seed=1)
    for key, weight in model.state_dict().items():
        assert torch.equal(weight, again.state_dict()[key])
        assert torch.equal(weight, longer.state_dict()[key])
    assert any((w != other.state_dict()[key]).any() for key, w in model.state_dict().items())


@torch.no_grad()
@every
def test_exact_evaluation_takes_it(name):
    model = model_of(name).eval()
    require_exact(model)
    require_causal(model)
    tokens = torch.randint(0, VOCABULARY, (3, 20))
    torch.testing.assert_close(model(tokens).double(), exact_copy(model)(tokens), **FLOAT32)


@torch.no_grad()
@every
def test_rows_that_have_ended_run_along_idle(name):
    """At their last position, for more steps than the model has positions."""
    model, tokens = model_of(name, max_len=20).eval(), torch.randint(0, VOCABULARY, (2, 20))
    full, lengths = model(tokens), torch.tensor([18, 3])
    logits, state = model.prefill(tokens[:, :18], lengths)
    rows = torch.arange(2)
    for position in range(3, 20):
        torch.testing.assert_close(logits[1], full[1, position - 1], **FLOAT32)
        positions = torch.tensor([min(15 + position, 19), position])
        logits = model.step(tokens[rows, positions], positions, state)
    torch.testing.assert_close(logits[1], full[1, 19], **FLOAT32)


@every
@pytest.mark.parametrize(
    ("common", "message"),
    [
        ({"dim": 10, "num_heads": 4}, "dim=10 is not divisible by num_heads=4"),
        ({"position": "absolute"}, "position='absolute'"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(name, common, message):
    given = {"dim": 16, "num_heads": 2, "max_len": 20, "dropout": 0.0, "position": "none"} | common
    for mixer in mixers_of(name):
        assert set(given) <= set(parameters_of(type(mixer)))
        with pytest.raises(UserError) as refusal:
            type(mixer)(**given)
        assert message in str(refusal.value)
