"""The mixer interface (`models.mixer`), for every conf/model/*.yaml (discovered automatically).

`pytest tests/models/test_every_model.py --config-dir=DIR -k NAME` tests DIR/model/NAME.yaml. The
reference of a mixer in models/NAME.py is NAME in tests/models/reference.py; a mixer in another
module may define `mix` there. Tolerances are relative to the largest magnitude: float64 has errors
of 1e-9 after sums of 70 terms, float32 1e-4; under autocast to bfloat16 (2^-8), about ten roundings
give errors of up to 10 % of a gradient (gated_delta_net 8 %, most others 2 %).
"""

from typing import get_args

import pytest
import torch
from comparing import FLOAT32, compare, compare_packed, generate, with_gradients
from configured import LONGEST, VARIANTS, VOCABULARY, mixers_of, model_of, names
from small_models import held_bytes, plain_greedy, written

from common import UserError
from evaluation.generate import generate as generate_exactly
from models import flops
from models.checks import require_causal, require_exact, require_same_step
from models.mixer import Position
from tasks.arithmetic import Arithmetic

every = pytest.mark.parametrize("name", [*names(), *VARIANTS])


def takes_rope(name):
    """Whether every mixer of the model supports position="rope"."""
    return all(mixer.takes_rope for mixer in mixers_of(name))


def test_the_papers_models_take_rotary_positions():
    assert all(map(takes_rope, ("standard", "sparse", "linear")))


@every
@pytest.mark.parametrize("position", ["none", "rope"])
def test_output_and_gradients_equal_the_reference(name, position):
    """Tolerances are larger for rope, whose sines and cosines are float32."""
    if position == "rope" and not takes_rope(name):
        with pytest.raises(UserError, match=r"^position=rope: .* use sinusoidal or none"):
            model_of(name, position="rope")
        return
    for mixer in mixers_of(name, position=position):
        compare(mixer, torch.randn(2, 33, 16), 1e-4)
        for length in (1, 7, 32, 70) if position == "none" else (33,):
            x = torch.randn(2, length, 16, dtype=torch.float64)
            compare(mixer.double(), x, 1e-9 if position == "none" else 1e-6)


@every
def test_tokens_of_extreme_size(name):
    """Gates, weights and features near 0 and 1: correct in float64, finite in float32."""
    size = 10 ** torch.linspace(-2, 1.5, 41)[torch.randperm(41)][:, None]
    x = size * torch.randn(2, 41, 16)
    for mixer in mixers_of(name):
        found = with_gradients(mixer, [x], torch.ones_like(x), mixer.parameters())
        assert all(part.isfinite().all() for part in found)
        compare(mixer.double(), x.double(), 1e-8)


@every
def test_bf16_is_near_float32(name):
    """The median over seven inputs of the largest relative error of output and gradients. Where a
    head's sums are near 0, their norm amplifies the rounding of q and k without bound: for about 10
    of 100 inputs a gradient is more than 10 % off (RetNet, GLA, Mamba-2), nearly always at the
    token with the smallest sums."""
    for mixer in mixers_of(name):
        worst = []
        for x in torch.randn(7, 2, 33, 16):
            given = mixer, [x], torch.ones_like(x), list(mixer.parameters())
            with torch.autocast("cpu", torch.bfloat16):
                found = with_gradients(*given)
            assert all(rounded.isfinite().all() for rounded in found)
            pairs = zip(found, with_gradients(*given), strict=True)
            worst.append(max((a - b).abs().max() / b.abs().max().clamp(min=1) for a, b in pairs))
        assert sorted(worst)[3] < 0.1


@torch.no_grad()
@every
@pytest.mark.parametrize("position", get_args(Position))
def test_generation_equals_forward_on_the_prefix(name, position):
    """Right-padded prompts of different lengths; rows are removed and reordered."""
    if position == "rope" and not takes_rope(name):
        pytest.skip("refused, as another test sees")
    model = model_of(name, position, max_len=41).eval()
    tokens = torch.randint(0, VOCABULARY, (6, 41))
    lengths = torch.tensor([1, 2, 7, 8, 9, 33])
    full, reached = model(tokens), 0
    for ids, positions, logits, _ in generate(model, tokens, lengths, turn_every=5):
        torch.testing.assert_close(logits, full[ids, positions], **FLOAT32)
        reached += len(ids)
    assert reached == (41 - lengths + 1).sum()


@torch.no_grad()
@every
@pytest.mark.parametrize("prompt", [1, 20])
def test_state_bytes_equal_the_bytes_held(name, prompt):
    """States of constant size count in full, growing ones by their written slots."""
    model = model_of(name, max_len=41).eval()
    tokens = torch.randint(0, VOCABULARY, (1, 41))
    mixers = [block.mixer for block in model.blocks]
    for _, positions, _, state in generate(model, tokens, torch.tensor([prompt])):
        length = int(positions[0]) + 1
        for mixer, layer in zip(mixers, state, strict=True):
            used = held_bytes(layer)
            if mixer.state_bytes(1) != mixer.state_bytes(41):
                held = [pair for pair in layer.tensors.items() if pair[1].is_floating_point()]
                used = sum(bytes_in_use(*pair) for pair in held)
            assert mixer.state_bytes(length) == used
    assert model.state_bytes(41) == sum(held_bytes(layer) for layer in state)


def bytes_in_use(key, tensor):
    """Bytes of the written slots of a (1, H, slots, K) cache; sums (1, H, K[, K]) count in full."""
    if key == "inputs":  # kept by the default `step`: a cache of one head
        tensor = tensor[:, None]
    used = tensor.flatten(3).any(-1).any(1) if tensor.dim() == 4 else tensor.new_ones(1)
    return tensor.nbytes * int(used.sum()) // used.numel()


@every
def test_flops_count_weight_matrices_and_mixing(name):
    """Weight matrices take 2 FLOPs per weight and token; mixing is counted. With a state of
    constant size, FLOPs are proportional to the length."""
    model = model_of(name)
    roles = model.parameter_roles()
    for number, block in enumerate(model.blocks):
        mixer, own = block.mixer, f"blocks.{number}.mixer."
        hidden = [w for key, w in mixer.named_parameters() if roles[own + key].kind == "hidden"]
        weights = sum(w.numel() for w in hidden)
        for length in (1, 9, 70):
            assert flops.linear_layer_flops(mixer.flops(length)) == 2 * weights * length
        terms = mixer.flops(33)
        assert {term.split("/")[0] for term in terms} <= {"linear", "mixing"}
        assert all(count > 0 for count in terms.values())
        assert any(term.startswith("mixing/") for term in terms)
        if mixer.state_bytes(1) == mixer.state_bytes(LONGEST):
            why = "constant state, but FLOPs per token grow: `flops` must count those of `step`"
            assert sum(mixer.flops(66).values()) == 2 * sum(terms.values()), why


@every
def test_packed_sequences_equal_padded_ones(name):
    position = "rope" if takes_rope(name) else "none"
    for lengths in ([1], [1, 2, 3, 4, 15, 16, 17, 31, 32, 33, 60], [3] * 9 + [29] * 3):
        for mixer in mixers_of(name):
            compare_packed(mixer, lengths, 1e-4)
        for mixer in mixers_of(name, position=position):
            compare_packed(mixer, lengths, 1e-10, torch.float64)


@every
def test_every_parameter_learns(name):
    model = model_of(name, dropout=0.1).train()
    tokens = torch.randint(0, VOCABULARY, (4, 20))
    logits = model(tokens)[:, :-1].flatten(0, 1)
    torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten()).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all() and parameter.grad.any(), key


@every
def test_weights_depend_only_on_the_seed_and_are_the_whole_state_dict(name):
    model = model_of(name)
    assert set(model.state_dict()) == {key for key, _ in model.named_parameters()}
    again, longer, other = model_of(name), model_of(name, max_len=140), model_of(name, seed=1)
    for key, weight in model.state_dict().items():
        assert torch.equal(weight, again.state_dict()[key])
        assert torch.equal(weight, longer.state_dict()[key])
    assert any((w != other.state_dict()[key]).any() for key, w in model.state_dict().items())


@torch.no_grad()
@every
def test_exact_evaluation_accepts_the_model(name):
    model = model_of(name)
    require_exact(model)
    require_causal(model)
    require_same_step(model)


@pytest.mark.parametrize("name", names())
def test_exact_evaluation_equals_plain_greedy_decoding(name):
    task = Arithmetic(3)
    model = model_of(name, max_len=task.max_len, vocabulary=len(task.vocabulary))
    sequences = task.draw(0, 0, 0, 12)
    assert written(generate_exactly(model, sequences)) == plain_greedy(model, sequences)


@torch.no_grad()
@every
def test_finished_rows_do_not_change_the_others(name):
    """Finished rows stay at their last position, for more steps than the model has positions."""
    model, tokens = model_of(name, max_len=20).eval(), torch.randint(0, VOCABULARY, (2, 20))
    full, lengths = model(tokens), torch.tensor([18, 3])
    logits, state = model.prefill(tokens[:, :18], lengths)
    rows = torch.arange(2)
    for position in range(3, 20):
        torch.testing.assert_close(logits[1], full[1, position - 1], **FLOAT32)
        positions = torch.tensor([min(15 + position, 19), position])
        logits = model.step(tokens[rows, positions], positions, state)
    torch.testing.assert_close(logits[1], full[1, 19], **FLOAT32)
