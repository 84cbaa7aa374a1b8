"""The transformer around the mixer: its equations, initialisation, dropout, refusals."""

import functools
import importlib.util
import math

import pytest
import torch
from mixer_cases import CASES, Case, each, sparse
from toy_mixers import CumulativeMean, TensorAttention

from common import UserError
from models.linear import LinearAttention
from models.mixer import POSITIONS
from models.sparse import SparseAttention, default_block_size
from models.standard import StandardAttention
from models.transformer import Transformer, scale_embedding
from tests.models.reference import attention as reference


def transformer(case, dim=8, max_len=12, **common):
    mixer = functools.partial(case.build, **case.own)
    sizes = {"vocab_size": 11, "num_layers": 2, "num_heads": 2}
    return Transformer(max_len=max_len, dim=dim, mixer=mixer, **(sizes | common))


def written_out(model, tokens, case, position):
    """The model's logits in float64 from its weights alone, by the equations of section 2."""
    weights = {name: w.double() for name, w in model.state_dict().items()}

    def linear(name, x):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name, x):
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def attention(name, x):
        batch, length, dim = x.shape
        parts = (
            part.reshape(batch, length, 2, dim // 2).transpose(1, 2)
            for part in linear(f"{name}.qkv", x).split(dim, -1)
        )
        y = case.naive(*parts, position=position)
        return linear(f"{name}.out", y.transpose(1, 2).reshape(batch, length, dim))

    x = weights["embedding.weight"][tokens]
    if position == "sinusoidal":
        for t in range(tokens.shape[1]):
            for c in range(x.shape[-1]):
                angle = t / 10000 ** (2 * (c // 2) / x.shape[-1])
                x[:, t, c] += math.cos(angle) if c % 2 else math.sin(angle)
    x = norm("embedding_norm", x)
    for block in ("blocks.0", "blocks.1"):
        x = x + attention(f"{block}.mixer", norm(f"{block}.mixer_norm", x))
        inner = linear(f"{block}.ffn.0", norm(f"{block}.ffn_norm", x))
        gelu = inner * (1 + torch.erf(inner / 2**0.5)) / 2
        x = x + linear(f"{block}.ffn.2", gelu)
    return linear("head", norm("final_norm", x))


@torch.no_grad()
@each(CASES)
@pytest.mark.parametrize("position", POSITIONS)
def test_logits_equal_the_equations(case, position):
    model = transformer(case, position=position).eval()
    for parameter in model.parameters():  # norms and biases start at 1 and 0 and would hide
        parameter += 0.1 * torch.randn_like(parameter)
    tokens = torch.randint(0, 11, (3, 12))
    expected = written_out(model, tokens, case, position)
    torch.testing.assert_close(model(tokens).double(), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@each(CASES)
def test_a_float64_model_computes_in_float64(case):
    """Close calls of generation are decided by it, whatever batch they stand in."""
    model = transformer(case, position="none").eval().double()
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn_like(parameter)
    tokens = torch.randint(0, 11, (3, 12))
    logits = model(tokens)
    expected = written_out(model, tokens, case, "none")
    torch.testing.assert_close(logits, expected, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(model(tokens[1:2, :7]), logits[1:2, :7], rtol=1e-11, atol=1e-12)


@torch.no_grad()
def test_head_of_hidden_gives_the_logits_at_chosen_positions():
    model = transformer(CASES[0]).eval()
    tokens = torch.randint(0, 11, (3, 12))
    chosen = torch.rand(3, 12) < 0.5
    torch.testing.assert_close(model.head(model.hidden(tokens)[chosen]), model(tokens)[chosen])


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_tokens_of_any_whole_number_type(dtype):
    model = transformer(CASES[0]).eval()
    tokens = torch.randint(0, 11, (3, 12))
    assert torch.equal(model(tokens.to(dtype)), model(tokens))


@each(CASES)
def test_every_matrix_is_xavier_uniform_and_every_bias_zero(case):
    model = transformer(case, dim=64)
    matrices = dict(model.named_parameters())
    for block in range(2):
        stacked = matrices.pop(f"blocks.{block}.mixer.qkv.weight")
        matrices |= {f"{block}.{i}": w for i, w in enumerate(stacked.chunk(case.parts))}
    for name, weight in matrices.items():
        if weight.dim() == 2:
            bound = (6 / sum(weight.shape)) ** 0.5
            assert 0.95 * bound < weight.abs().max() <= bound, name
            assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1), name
        else:
            assert (weight == (1 if "norm" in name and name.endswith("weight") else 0)).all(), name


def test_dropout_acts_on_embedding_and_both_branches_in_training_alone():
    model = transformer(Case("mean", CumulativeMean), dropout=0.5, num_layers=1)
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


def test_a_mixer_from_a_file_outside_the_repository(tmp_path):
    path = tmp_path / "shift.py"
    path.write_text(
        "import torch\n"
        "from models.mixer import Mixer\n\n"
        "class Shift(Mixer):\n"
        "    def __init__(self, dim, num_heads, max_len, dropout, position, by=1):\n"
        "        super().__init__(dim, num_heads, max_len, dropout, position)\n"
        "        self.by = by\n\n"
        "    def forward(self, x):\n"
        "        return torch.nn.functional.pad(x, (0, 0, self.by, 0))[:, : x.shape[1]]\n"
    )
    spec = importlib.util.spec_from_file_location("shift", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = transformer(Case("shift", module.Shift, {"by": 2})).eval()
    tokens = torch.randint(0, 11, (2, 12))
    with torch.no_grad():
        logits, state = model.prefill(tokens[:, :5], torch.tensor([5, 3]))
        after = model.step(torch.tensor([1, 2]), torch.tensor([5, 3]), state)
    assert logits.shape == after.shape == (2, 11)


def test_tensor_attention_equals_its_definition():
    """Definition 3.28 for one head, causal: a sum over all pairs j, k <= i."""
    mixer = TensorAttention(4, 1, 6).double().eval()
    x = torch.randn(1, 5, 4, dtype=torch.float64)
    q, k1, k2, v1, v2 = mixer.projections(x)[0].split(4, -1)
    for i in range(5):
        numerator, total = 0, 0
        for j in range(i + 1):
            for k in range(i + 1):
                weight = (q[i] * k1[j] * k2[k]).sum().div(4).exp()
                numerator, total = numerator + weight * v1[j] * v2[k], total + weight
        torch.testing.assert_close(mixer(x)[0, i], mixer.out(numerator / total))


def test_rope_mixer_turns_tensor_keys_by_their_distance():
    mixer = TensorAttention(4, 1, 6, position="rope").double()
    keys = torch.randn(1, 1, 6, 4, dtype=torch.float64)
    turned = mixer.relative(keys, torch.ones(6, 6).tril().long())  # (1, 1, i, j, K)
    for i in range(6):
        for j in range(i + 1):
            alone = keys[:, :, j : j + 1].expand(-1, -1, 6, -1)
            expected = reference.rotated(alone)[:, :, i - j]
            torch.testing.assert_close(turned[:, :, i, j], expected)


@pytest.mark.parametrize(
    ("lengths", "block_size"), [((72, 83, 87, 210, 221, 223), 8), ((342, 353, 505, 506), 16)]
)
def test_default_block_size_is_the_papers(lengths, block_size):
    for length in lengths:
        assert default_block_size(length) == block_size
        assert SparseAttention(8, 2, length).block_size == block_size


@pytest.mark.parametrize("length", [1, 3, 4, 15, 16, 63, 64, 255, 256, 2**20 - 1, 2**20])
def test_default_block_size_at_powers_of_two(length):
    """The largest power of two whose square is at most L; no rounding of logarithms."""
    size = default_block_size(length)
    assert size**2 <= length < (2 * size) ** 2


BAD = {
    "dim=10 is not divisible by num_heads=4": {"dim": 10, "num_heads": 4},
    "dim=9 is odd": {"dim": 9, "num_heads": 3},
    "position='absolute': expected one of sinusoidal, rope, none": {"position": "absolute"},
    "position=rope needs an even head_dim, not 3": {"dim": 6, "position": "rope"},
}


@pytest.mark.parametrize("message", BAD)
def test_sizes_that_do_not_fit_are_refused(message):
    with pytest.raises(UserError) as refusal:
        transformer(CASES[0], **BAD[message])
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("build", "own"),
    [
        (SparseAttention, {"block_size": 0}),
        (SparseAttention, {"window_blocks": 0}),
        (SparseAttention, {"summary_tokens": -1}),
        (SparseAttention, {"block_size": 4, "summary_tokens": 5}),
        (SparseAttention, {"implementation": "chunked"}),
        (LinearAttention, {"chunk_size": 0}),
        (LinearAttention, {"implementation": "blocked"}),
    ],
)
def test_parameters_of_mixers_are_checked(build, own):
    with pytest.raises(UserError, match=next(reversed(own))):
        build(8, 2, 20, **own)


def test_more_tokens_than_max_len_are_refused():
    model = transformer(Case("standard", StandardAttention))
    with pytest.raises(UserError, match="13 tokens are more than this model's max_len=12"):
        model(torch.zeros(1, 13, dtype=torch.int64))


def test_auto_resolves_by_max_len():
    for build, small in ((SparseAttention, "dense"), (LinearAttention, "dense")):
        assert build(8, 2, 16).implementation == small
        assert build(8, 2, 4096).implementation != small
    assert sparse("blocked").mixer(16).implementation == "blocked"


@each(CASES)
def test_compiles_into_one_graph(case):
    """No break for torch.compile in training; "eager" runs the traced graph as it is."""
    torch.compiler.reset()
    model = transformer(case, dropout=0.0)
    tokens = torch.randint(0, 11, (2, 12))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(tokens), model(tokens))


@pytest.mark.parametrize(("dim", "chunk_size"), [(64, 32), (1024, 256)])
def test_sums_between_chunks_weigh_no_more_than_the_chunks(dim, chunk_size):
    assert LinearAttention(dim, 4, 505).chunk_size == chunk_size
    assert LinearAttention(dim, 4, 505, chunk_size=7).chunk_size == 7


def rms(x):
    return x.double().square().mean().sqrt().item()


@pytest.mark.parametrize("vocab_size", [20, 252])
@pytest.mark.parametrize("dim", [16, 64, 512])
def test_the_ratio_of_embedding_to_positions_is_the_same_at_every_width(dim, vocab_size):
    scaled = transformer(CASES[0], dim, vocab_size=vocab_size)
    before = scaled.embedding.weight.detach().clone()
    scale_embedding(scaled.embedding, 0.8)
    weight = scaled.embedding.weight.detach()
    assert rms(weight) / rms(scaled.sinusoids) == pytest.approx(0.8, rel=1e-5)
    torch.testing.assert_close(weight / weight.abs().max(), before / before.abs().max())


@pytest.mark.parametrize("position", ["rope", "none"])
def test_it_does_not_depend_on_the_kind_of_position(position):
    scaled = transformer(CASES[0], 16, position=position)
    scale_embedding(scaled.embedding, 1.5)
    assert rms(scaled.embedding.weight) / rms(transformer(CASES[0], 16).sinusoids) == pytest.approx(
        1.5, rel=1e-5
    )


def test_none_leaves_xaviers_values():
    plain = transformer(CASES[0], 16)
    before = plain.embedding.weight.detach().clone()
    scale_embedding(plain.embedding, None)
    assert torch.equal(plain.embedding.weight, before)
