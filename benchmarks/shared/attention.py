"""Forward and backward passes of attention alone, or of a whole mixer: 4 heads of 16."""

from __future__ import annotations

from collections.abc import Callable

import torch

from models.attention import AttentionMixer
from models.mixer import Mixer

HEADS, HEAD_DIM = 4, 16


def attention_pass(mixer: AttentionMixer, length: int, batch: int) -> Callable[[], None]:
    """Return a function that runs `attend` forward and backward on fixed random inputs."""
    generator = torch.Generator().manual_seed(0)
    shape = (batch, mixer.num_heads, length, mixer.head_dim)
    q, k, v, direction = (torch.randn(shape, generator=generator) for _ in range(4))
    leaves = [x.requires_grad_() for x in (q, k, v)]

    def pass_once() -> None:
        torch.autograd.grad(mixer.attend(*leaves), leaves, direction)

    return pass_once


def mixer_pass(mixer: Mixer, length: int, batch: int) -> Callable[[], None]:
    """Return a function that runs the whole mixer forward and backward on fixed random inputs."""
    generator = torch.Generator().manual_seed(0)
    x, direction = (torch.randn(batch, length, mixer.dim, generator=generator) for _ in range(2))
    leaves = [x.requires_grad_(), *mixer.parameters()]

    def pass_once() -> None:
        torch.autograd.grad(mixer(x), leaves, direction)

    return pass_once
