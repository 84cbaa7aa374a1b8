"""The transformer around the mixer: equations, initialisation, dropout; how it is built; errors."""

import math
from typing import get_args

import pytest
import torch
from comparing import plain_form, transformer
from configured import VOCABULARY, model_of, settings

from common import UserError
from models.attention import ShortConvolution
from models.build import ModelConfig, build_mixer, build_model
from models.linear import LinearAttention
from models.lstm import LSTM
from models.mixer import Mixer, Position
from models.running_mean import RunningMean
from models.sparse import SparseAttention, default_block_size
from models.transformer import scale_embedding
from tasks.lis import LIS


def tokens_of(rows=3, length=12):
    return torch.randint(0, VOCABULARY, (rows, length))


def written_out(model, tokens, position):
    """Logits of the float64 model from the equations of section 2."""
    weights = model.state_dict()

    def linear(name, x):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name, x):
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    x = weights["embedding.weight"][tokens]
    if position == "sinusoidal":
        for t in range(tokens.shape[1]):
            for c in range(x.shape[-1]):
                angle = t / 10000 ** (2 * (c // 2) / x.shape[-1])
                x[:, t, c] += math.cos(angle) if c % 2 else math.sin(angle)
    x = norm("embedding_norm", x)
    for number, block in enumerate(model.blocks):
        name = f"blocks.{number}"
        x = x + plain_form(block.mixer)(norm(f"{name}.mixer_norm", x))
        inner = linear(f"{name}.ffn.0", norm(f"{name}.ffn_norm", x))
        x = x + linear(f"{name}.ffn.2", inner * (1 + torch.erf(inner / 2**0.5)) / 2)
    return linear("head", norm("final_norm", x))


@torch.no_grad()
@pytest.mark.parametrize("name", ["standard", "linear", "tensor"])
@pytest.mark.parametrize("position", get_args(Position))
def test_logits_equal_the_equations(name, position):
    """To the last digits in float64 and for any batch, since evaluation is in float64."""
    model, tokens = model_of(name, position, layers=2).eval(), tokens_of()
    single, model = model(tokens), model.double()
    expected, logits = written_out(model, tokens, position), model(tokens)
    torch.testing.assert_close(single.double(), expected, rtol=1e-4, atol=1e-5)
    # Sines and cosines are float32.
    digits = {"rtol": 1e-11, "atol": 1e-12} if position == "none" else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(logits, expected, **digits)
    torch.testing.assert_close(model(tokens[1:2, :7]), logits[1:2, :7], rtol=1e-11, atol=1e-12)


def test_short_convolution_is_initialised_like_pytorchs():
    kernel = ShortConvolution(4000, "canon", 4).kernel
    assert 0.49 < kernel.abs().max() <= 0.5
    assert kernel.std().item() == pytest.approx(0.5 / 3**0.5, rel=0.03)


def test_lstm_is_initialised_with_forget_biases_of_one():
    own = dict(LSTM(64, 2, 20).lstm.named_parameters())
    assert own["bias_ih_l0"].tolist() == [0] * 64 + [1] * 64 + [0] * 128
    assert not own["bias_hh_l0"].any()


def test_dropout_acts_on_embedding_and_both_branches_only_in_training():
    model = transformer(RunningMean, dropout=0.5, num_layers=1)
    seen = []
    for module in (model.dropout, model.blocks[0].dropout):
        module.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output)))
    tokens = torch.randint(0, 11, (8, 12))
    model.train()(tokens)
    assert len(seen) == 3
    for before, after in seen:
        kept = after != 0
        assert 0.4 < kept.float().mean() < 0.6
        torch.testing.assert_close(after[kept], 2 * before[kept])
    assert torch.equal(model.eval()(tokens), model(tokens))


@pytest.mark.parametrize(
    "length", [1, 3, 4, 15, 16, 63, 64, 72, 223, 255, 256, 342, 506, 2**20 - 1, 2**20]
)
def test_default_block_size_is_the_largest_power_of_two_whose_square_is_at_most_l(length):
    """8 for the paper's lengths from 72 to 223, 16 from 342 to 506; exact at powers of two."""
    size = default_block_size(length)
    assert size.bit_count() == 1 and size**2 <= length < (2 * size) ** 2
    if length < 1000:
        assert SparseAttention(8, 2, length).block_size == size


TASK = LIS(8)
LINEAR = {"_target_": "models.linear.LinearAttention"}


def config(num_layers=4, **own):
    return ModelConfig("mine", dim=16, num_layers=num_layers, num_heads=2, **own)


def test_sizes_come_from_the_group_and_the_task():
    mixer = {**LINEAR, "chunk_size": 7}
    model = build_model(config(mixer=mixer, position="rope"), TASK, dropout=0.25)
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
        build_model(config(mixer=LINEAR), TASK)


BAD = [  # the last setting is refused, also in combination with those before it
    *(("sparse", {key: 0}) for key in ("block_size", "window_blocks")),
    ("sparse", {"summary_tokens": -1}), ("sparse", {"block_size": 4, "summary_tokens": 5}),
    ("sparse", {"implementation": "chunked"}), ("sliding_window", {"window": 0}),
    ("linear", {"chunk_size": 0}), ("linear", {"implementation": "blocked"}),
    ("linear", {"convolution": "mamba"}), ("linear", {"convolution_width": 1}),
    ("tensor", {"scale": "none"}), ("tensor_linear", {"chunk_size": 0}),
    ("taylor", {"feature_dim": 0}), ("taylor", {"position": "rope", "feature_dim": 3}),
    *(("mamba2", {"A_range": bad}) for bad in ([16], [16, 1], [-1, 16], 16)),
    *(("gated_delta_net", {"A_range": bad}) for bad in ([16], [16, 1], [-1, 16])),
    ("delta_net", {"negative_eigenvalues": "no"}), ("retnet", {"output_gate": "off"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "own"), BAD)
def test_parameters_of_mixers_are_checked(name, own):
    with pytest.raises(UserError, match=next(reversed(own))):
        build_mixer({**settings(name).mixer, **own}, dim=8, num_heads=2, max_len=20)


def test_more_tokens_than_max_len_are_refused():
    model = transformer()
    with pytest.raises(UserError, match="13 tokens are more than this model's max_len=12"):
        model(torch.zeros(1, 13, dtype=torch.int64))


def test_auto_resolves_by_max_len():
    for build in (SparseAttention, LinearAttention):
        assert build(8, 2, 16).implementation == "dense" != build(8, 2, 4096).implementation


COMPILED = ["standard", "sparse:blocked", "linear:chunked", "tensor", "tensor_linear"]


@pytest.mark.parametrize("name", COMPILED)
def test_compiles_into_one_graph(name):
    """No graph breaks in training; the "eager" backend runs the traced graph unchanged."""
    torch.compiler.reset()
    model, tokens = model_of(name, max_len=12).train(), tokens_of(2)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(tokens), model(tokens))


def rms(x):
    return x.double().square().mean().sqrt().item()


@pytest.mark.parametrize("dim", [16, 64, 512])
def test_embedding_ratio_does_not_depend_on_width(dim):
    scaled = transformer(dim=dim)
    sinusoids = transformer(dim=dim).sinusoids
    before = scaled.embedding.weight.detach().clone()
    scale_embedding(scaled.embedding, None)
    assert torch.equal(scaled.embedding.weight, before)  # Xavier initialisation
    scale_embedding(scaled.embedding, 0.8)
    weight = scaled.embedding.weight.detach()
    assert rms(weight) / rms(sinusoids) == pytest.approx(0.8, rel=1e-5)
    torch.testing.assert_close(weight / weight.abs().max(), before / before.abs().max())
