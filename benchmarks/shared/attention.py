"""Forward and backward passes of attention alone, or of a whole mixer: 4 heads of 16."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

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


def mixers_pass(mixers: list[Mixer], length: int, batch: int) -> Callable[[], None]:
    """Return a function that runs whole mixers, one behind the other, forward and backward."""
    generator, dim = torch.Generator().manual_seed(0), mixers[0].dim
    x, direction = (torch.randn(batch, length, dim, generator=generator) for _ in range(2))
    chain = nn.Sequential(*mixers)
    leaves = [x.requires_grad_(), *chain.parameters()]

    def pass_once() -> None:
        torch.autograd.grad(chain(x), leaves, direction)

    return pass_once
