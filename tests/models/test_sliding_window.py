"""Sliding-window attention: who sees whom, in both forms, and what it keeps."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mixer_cases import assert_close, random_qkv, with_gradients

from common import UserError
from models.sliding_window import SlidingWindow
from tests.models.reference import attention as reference


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 20), st.integers(1, 50), st.sampled_from(["dense", "blocked"]))
def test_any_window_equals_the_definition(window, length, form):
    mixer = SlidingWindow(8, 2, 50, window=window, implementation=form)
    inputs, direction = random_qkv(length), torch.randn(2, 2, length, 4)

    def plain(q, k, v):
        seen = lambda i: [j for j in range(1, i + 1) if i - j < window]  # noqa: E731
        return reference.softmax_attention(q, k, v, seen)

    exact = [x.double() for x in inputs]
    wanted = with_gradients(plain, exact, direction.double())
    assert_close(with_gradients(mixer.attend, inputs, direction), wanted, 1e-5)


def test_its_state_stops_growing_at_the_window():
    mixer = SlidingWindow(8, 2, 50, window=6)
    assert [mixer.state_bytes(t) for t in (1, 6, 7, 50)] == [64, 6 * 64, 6 * 64, 6 * 64]
    assert mixer.step_flops(10) == mixer.step_flops(49) > mixer.step_flops(4)


def test_the_default_window_is_sparses():
    assert [SlidingWindow(8, 2, length).window for length in (64, 223, 505)] == [8, 8, 16]


def test_a_window_of_no_tokens_is_refused():
    with pytest.raises(UserError, match="window=0"):
        SlidingWindow(8, 2, 20, window=0)
