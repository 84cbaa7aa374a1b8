"""The mixers under test, each with its naive reference, under readable names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from models.attention import AttentionMixer
from models.linear import LinearAttention
from models.sparse import SparseAttention
from models.standard import StandardAttention
from models.tensor import TensorAttention
from models.tensor_linear import TensorLinearAttention
from tests.models.reference import attention as reference
from tests.models.reference.tensor import tensor_attention
from tests.models.reference.tensor_linear import tensor_linear_attention

BLOCK = 8


@dataclass(frozen=True)
class Case:
    """A mixer class with parameters; `naive` maps q, k, v (and a dropout mask) to the output.

    attended: what each token sees, of softmax attention to single tokens; definition: the plain
    form of all others. longest: beyond it the plain form takes too much time.
    """

    name: str
    build: type[AttentionMixer]
    own: dict = field(default_factory=dict)
    attended: Callable[[int], list[int]] | None = None
    definition: Callable[..., Tensor] | None = None
    longest: int = 1000

    def mixer(self, max_len: int, dim: int = 8, num_heads: int = 2, **common) -> AttentionMixer:
        return self.build(dim, num_heads, max_len, **common, **self.own)

    @property
    def parts(self) -> int:
        """How many projections it has: 3 for q, k and v."""
        return self.build.parts

    def naive(self, *parts: Tensor, keep=None, position: str = "none") -> Tensor:
        if self.attended is None:
            return self.definition(*parts, position=position)
        q, k, v = parts
        if position == "rope":
            q, k = reference.rotated(q), reference.rotated(k)
        return reference.softmax_attention(q, k, v, self.attended, keep)


def sparse(implementation: str, block: int = BLOCK, window: int = 1, summaries: int = 1) -> Case:
    own = {
        "block_size": block,
        "window_blocks": window,
        "summary_tokens": summaries,
        "implementation": implementation,
    }
    name = f"sparse-{implementation}-B{block}-k{window}-c{summaries}"

    def attended(i: int) -> list[int]:
        return reference.sparse_set(i, block, window, summaries)

    return Case(name, SparseAttention, own, attended)


def linear(implementation: str, chunk_size: int | None = None) -> Case:
    own = {"implementation": implementation, "chunk_size": chunk_size}
    name = f"linear-{implementation}" + (f"-C{chunk_size}" if chunk_size else "")
    return Case(name, LinearAttention, own, definition=reference.linear_attention)


SOFTMAX = [
    Case("standard", StandardAttention, {}, reference.standard_set),
    sparse("dense"),
    sparse("blocked"),
    sparse("dense", 5, 2, 3),
    sparse("blocked", 5, 2, 3),
]
TENSOR = Case("tensor", TensorAttention, definition=tensor_attention, longest=70)
TENSOR_LINEAR = Case(
    "tensor-linear",
    TensorLinearAttention,
    {"chunk_size": BLOCK},
    definition=tensor_linear_attention,
    longest=70,
)
LINEAR = [linear("dense"), linear("chunked", BLOCK), linear("chunked")]
CASES = [*SOFTMAX, *LINEAR, TENSOR, TENSOR_LINEAR]
LENGTHS = [1, BLOCK - 1, BLOCK, BLOCK + 1, 63, 500]  # BLOCK - 1 = 7


def each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def random_qkv(
    length: int, batch: int = 2, heads: int = 2, width: int = 4, parts: int = 3
) -> list[Tensor]:
    return [torch.randn(batch, heads, length, width) for _ in range(parts)]


def with_gradients(function, inputs: list[Tensor], direction: Tensor) -> list[Tensor]:
    """The output of function(*inputs) and the gradients of its product with `direction`."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    output = function(*leaves)
    output.backward(direction.to(output.dtype))
    return [output.detach(), *(leaf.grad for leaf in leaves)]


def assert_close(actual: list[Tensor], expected: list[Tensor], relative: float) -> None:
    """Largest difference at most `relative` times the largest expected magnitude, one by one."""
    for found, wanted in zip(actual, expected, strict=True):
        assert found.shape == wanted.shape
        worst = (found.double() - wanted.double()).abs().max().item()
        scale = wanted.abs().max().item()
        assert worst <= relative * max(scale, 1.0), f"off by {worst:.2e} at magnitude {scale:.2e}"
