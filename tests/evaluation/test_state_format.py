"""Low-bit states and weights, compared with rounding one sequence at a time in NumPy."""

import functools

import numpy as np
import pytest
import torch
from configured import model_of, names
from hypothesis import given
from hypothesis import strategies as st
from small_models import MIXERS, prepared, small_model, written

from common import UserError
from evaluation.generate import generate
from evaluation.state_format import parse_format, rounded_weights, state_rounding
from models.linear import LinearAttention
from models.mixer import GenerationState
from models.transformer import Transformer
from tasks.lis import LIS
from tasks.sequences import EOS_ID


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3", "float8_e5m2"])
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1))
def test_torch_formats_round_like_torch_casts_and_saturate(name, values):
    x = torch.tensor(values + [v * 1e-8 for v in values], dtype=torch.float32)
    dtype = torch.float8_e4m3fn if name == "float8_e4m3" else getattr(torch, name)
    largest = torch.finfo(dtype).max
    assert torch.equal(parse_format(name).round(x), x.clamp(-largest, largest).to(dtype).float())


@given(st.integers(0, 10), st.integers(2, 5), st.lists(st.floats(-9, 9, width=32), min_size=1))
def test_floats_round_to_the_nearest_representable_number(mantissa, exponent, values):
    bias, fractions = 2 ** (exponent - 1) - 1, np.arange(2**mantissa) / 2**mantissa
    numbers = np.outer(2.0 ** np.arange(1 - bias, bias + 1), 1 + fractions).ravel()
    small = fractions * 2.0 ** (1 - bias)
    numbers = np.concatenate([numbers, -numbers, small, -small])
    x = torch.tensor(values)
    found = parse_format(f"float{mantissa}e{exponent}").round(x)
    nearest = np.abs(numbers - x[:, None].numpy()).min(1)
    assert np.isin(found.numpy(), numbers).all()
    np.testing.assert_allclose((found - x).abs(), nearest, rtol=1e-6)


@torch.no_grad()
def plain_scales(model, training, bits):
    """Largest magnitude per layer, tensor and head over all prefixes, over the largest integer."""
    scales = {}
    for row, length in zip(training.tokens, training.lengths, strict=True):
        tokens = torch.from_numpy(row[None].astype(int))
        _, state = model.prefill(tokens[:, :1], torch.tensor([1]))
        for t in range(1, length):
            for number, (layer, block) in enumerate(zip(state, model.blocks, strict=True)):
                for name, held in layer.tensors.items():
                    values = held[0].abs().numpy()
                    if values.ndim < 2 or len(values) != block.mixer.num_heads:
                        values = values[None]
                    most = values.reshape(len(values), -1).max(1) / (2 ** (bits - 1) - 1)
                    scales[number, name] = np.maximum(scales.get((number, name), most), most)
            if t < length - 1:
                model.step(tokens[:, t], torch.tensor([t]), state)
    return scales


def plain_rounded(held, name, scale):
    """Round one sequence's tensor (1, ...)."""
    if name == "float8_e4m3":
        return held.clamp(-448, 448).to(torch.float8_e4m3fn).float()
    largest = 2 ** (int(name[3:]) - 1) - 1
    steps = scale.reshape(-1, *[1] * (held.dim() - 2)) if len(scale) > 1 else scale
    steps = np.where(steps > 0, steps, 1)
    return torch.from_numpy(np.rint(held.numpy() / steps).clip(-largest, largest) * steps).float()


def test_integer_formats_have_a_scale_per_head_but_one_for_a_convolution():
    task = LIS(4)
    mixer = functools.partial(LinearAttention, convolution="canon")
    model = Transformer(len(task.vocabulary), task.max_len, 12, 1, 3, mixer)
    (scales,) = state_rounding("int8", model, task.draw(0, 2, 0, 20)).scales
    assert {name: scale.numel() for name, scale in scales.items()} == {
        "sums": 3, "normaliser": 3, "recent": 1,
    }  # fmt: skip


@torch.no_grad()
def plain_generation(model, sequences, name, longest, scales):
    texts = []
    for tokens, length in zip(sequences.tokens.tolist(), sequences.prompt_lengths, strict=True):
        text, t = tokens[:length], 1
        logits, state = model.prefill(torch.tensor([text[:1]]), torch.tensor([1]))
        while True:
            for number, layer in enumerate(state):
                for tensor, held in layer.tensors.items():
                    scale = scales.get((number, tensor))
                    layer.tensors[tensor] = plain_rounded(held, name, scale)
            if t == len(text):
                text.append(int(logits.argmax()))
                if text[-1] == EOS_ID or len(text) > longest:
                    break
            logits = model.step(torch.tensor([text[t]]), torch.tensor([t]), state)
            t += 1
        texts.append(text)
    return texts


@pytest.mark.parametrize("format", ["float8_e4m3", "int6"])
@pytest.mark.parametrize("model", names())
def test_generation_equals_a_plain_loop(model, format):
    task = LIS(4, number_range=10)
    made = model_of(model, max_len=task.max_len, vocabulary=len(task.vocabulary)).eval()
    sequences, training = task.draw(0, 1, 0, 12), task.draw(0, 2, 0, 8)
    rounding = state_rounding(format, made, training)
    scales = plain_scales(made, training, int(format[3:])) if format.startswith("int") else {}
    found = generate(made, sequences, rounding=rounding)
    assert written(found) == plain_generation(made, sequences, format, task.max_len, scales)


@pytest.mark.parametrize("mixer", MIXERS)
def test_float32_gives_the_same_tokens_and_labels_as_exact_evaluation(mixer):
    for name in ("arithmetic", "lis"):
        task, model = prepared(name, mixer, 40)
        sequences = task.draw(0, 1, 0, 24)
        exact, rounding = generate(model, sequences), state_rounding("float32", model, sequences)
        found = generate(model, sequences, 0.05, rounding=rounding)
        assert written(found) == written(exact)
        assert (found.first_mistake == exact.first_mistake).all()
    task = LIS(6, "tagged")
    model, sequences = small_model(task, mixer), task.draw(0, 1, 0, 30)
    found = generate(model, sequences, rounding=state_rounding("float32", model, sequences))
    assert (found.tokens == generate(model, sequences).tokens).all()


def test_positions_and_other_integers_are_not_rounded():
    rounding = state_rounding("float0e2", small_model(LIS(6)), LIS(4).empty(0))
    tensors = {"positions": torch.tensor([[7, 1000]]), "sums": torch.tensor([[7.0, 1000.0]])}
    layer = GenerationState(tensors, 1)
    rounding([layer])
    assert layer.tensors["positions"].tolist() == [[7, 1000]]
    assert layer.tensors["sums"].tolist() == [[2.0, 2.0]]


def test_weights_are_rounded_in_a_copy():
    model = small_model(LIS(6))
    weight = model.head.weight.detach().clone()
    assert torch.equal(rounded_weights(model, "float32").head.weight, weight)
    assert torch.equal(rounded_weights(model, "bfloat16").head.weight, weight.bfloat16().float())
    few = rounded_weights(model, "int2")
    assert len(few.head.weight.unique()) == 3
    assert torch.equal(model.head.weight, weight)


@pytest.mark.parametrize("name", ["float7", "float24e8", "int1", "int25", ""])
def test_impossible_formats_are_refused(name):
    with pytest.raises(UserError, match=r"format.*unknown"):
        state_rounding(name, small_model(LIS(6)), LIS(4).empty(0))
