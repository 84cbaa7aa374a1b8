"""A transformer written plainly, as CoT_benchmark (Feng et al. 2023) writes it.

Float32, scores (B, H, T, T) written out, masked by comparing a buffer with 0 and softmaxed, dropout
on them, GELU spelled out by its tanh formula, logits at every position.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tasks.task import SequenceSet

IGNORED = -100


class SpelledGELU(nn.Module):
    """GELU by the tanh approximation, operation by operation."""

    def forward(self, x: Tensor) -> Tensor:
        """Return GELU of x, element by element."""
        inner = x + 0.044715 * torch.pow(x, 3.0)
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * inner))


class PlainBlock(nn.Module):
    """Pre-norm block with attention written out: x (B, T, D) to (B, T, D)."""

    mask: Tensor

    def __init__(self, dim: int, num_heads: int, max_len: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.norm_1, self.norm_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 4 * dim), SpelledGELU(), nn.Linear(4 * dim, dim))
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.ones(max_len, max_len).tril())

    def forward(self, x: Tensor) -> Tensor:
        """Return x (B, T, D) after attention and feed-forward."""
        b, t, d = x.shape
        h = self.norm_1(x)
        q, k, v = (
            part.view(b, t, self.num_heads, -1).transpose(1, 2)  # (B, H, T, K)
            for part in self.qkv(h).split(d, dim=2)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, T)
        scores = scores.masked_fill(self.mask[:t, :t] == 0, float("-inf"))
        mixed = self.dropout(scores.softmax(-1)) @ v  # (B, H, T, K)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(b, t, d)))
        return x + self.dropout(self.ffn(self.norm_2(x)))


class PlainTransformer(nn.Module):
    """tokens (B, T) to logits (B, T, V)."""

    def __init__(self, vocab_size: int, max_len: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, dim)
        self.position = nn.Parameter(torch.zeros(max_len, dim), requires_grad=False)
        self.blocks = nn.Sequential(*(PlainBlock(dim, 4, max_len, dropout) for _ in range(3)))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, T, V) of tokens (B, T)."""
        x = self.embedding(tokens) + self.position[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def padded(sequences: SequenceSet) -> tuple[Tensor, Tensor]:
    """Return inputs and targets (N, L) of all sequences at their full width L.

    Targets in the prompt and in the padding are `IGNORED`.
    """
    tokens = torch.from_numpy(sequences.tokens.astype("int64"))
    place = torch.arange(1, tokens.shape[1])
    first = torch.as_tensor(sequences.prompt_lengths)[:, None]
    end = torch.as_tensor(sequences.lengths)[:, None]
    counts = (place >= first) & (place < end)
    return tokens[:, :-1], tokens[:, 1:].masked_fill(~counts, IGNORED)


def plain_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy over the targets that are not `IGNORED`."""
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def plain_step(
    model: PlainTransformer, sequences: SequenceSet, batch_size: int
) -> Callable[[], None]:
    """Return a function that updates ``model`` once with AdamW on a random batch."""
    device = model.head.weight.device
    inputs, targets = (x.to(device) for x in padded(sequences))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)

    def step() -> None:
        index = torch.randint(len(inputs), (batch_size,), device=device)
        optimizer.zero_grad(set_to_none=True)
        plain_loss(model, inputs[index], targets[index]).backward()
        optimizer.step()

    return step
