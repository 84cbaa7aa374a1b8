"""What the attention-like mixers share: projections, rotary positions, fused attention."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from models.mixer import Mixer, widened, without_autocast
from models.packing import Packing
from models.positions import rotary_table, rotate
from models.roles import Role
from models.short_convolution import ShortConvolution


class AttentionMixer(Mixer):
    """Projections to queries, keys and values, attention per head, projection of the output.

    With `convolution` "canon" or "silu" the projections pass a `ShortConvolution` over
    `convolution_width` tokens first. Subclasses write `attend`, `prefill`, `step`, `mixing_flops`
    and `state_bytes`; `parts` says how many projections they have where these are not q, k and v.
    """

    parts = 3
    rotary: Tensor

    def __init__(
        self,
        dim: int,
        num_heads: int,
        max_len: int,
        dropout: float = 0.0,
        position: str = "none",
        convolution: str = "none",
        convolution_width: int = 4,
    ):
        super().__init__(dim, num_heads, max_len, dropout, position)
        self.qkv = nn.Linear(dim, self.parts * dim)
        self.out = nn.Linear(dim, dim)
        if position == "rope":
            self.register_buffer("rotary", rotary_table(max_len, self.head_dim), persistent=False)
        # Xavier for queries, keys, values and output, each by itself (Yang et al. 2024, section 6).
        for matrix in (*self.qkv.weight.chunk(self.parts), self.out.weight):
            nn.init.xavier_uniform_(matrix)
        for layer in (self.qkv, self.out):
            nn.init.zeros_(layer.bias)
        self.convolution = ShortConvolution(self.parts * dim, convolution, convolution_width)

    def parameter_roles(self) -> dict[str, Role]:
        """Queries, keys and values are matrices of their own."""
        return {"qkv.weight": Role("hidden", parts=self.parts)}

    def forward(self, x: Tensor) -> Tensor:
        """Mix x (B, T, D) into (B, T, D)."""
        return self.merge(self.attend(*self.project(x)))  # each (B, H, T, K)

    def forward_packed(self, x: Tensor, packing: Packing) -> Tensor:
        """As `Mixer.forward_packed`, the projections without padding."""
        if overrides(self, AttentionMixer, "forward", "project", "merge"):
            return super().forward_packed(x, packing)
        qkv = self.convolution.forward_packed(self.qkv(x), packing)  # (N, 3D)
        qkv = qkv.unflatten(-1, (self.parts, self.num_heads, -1))  # (N, 3, H, K)
        return self.out(self.attend_packed(qkv, packing).flatten(1))

    def attend_packed(self, qkv: Tensor, packing: Packing) -> Tensor:
        """`attend` of packed queries, keys and values (N, 3, H, K), to (N, H, K)."""
        mixed = []
        for group in packing.groups:
            projected = group.pad(qkv).transpose(-4, -2).unbind(-3)  # (B, H, T, K) each
            mixed.append(group.unpad(self.attend(*projected).transpose(1, 2)))
        return packing.join(mixed)

    def attend(self, *args: Any, **kwargs: Any) -> Tensor:
        """Causal attention: q, k, v (B, H, T, K), without positions yet, to (B, H, T, K)."""
        raise NotImplementedError

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys, values of x (B, T, D), each (B, H, T, K)."""
        qkv = self.convolution(self.qkv(x))  # (B, T, 3D)
        split = qkv.unflatten(-1, (self.parts, self.num_heads, -1))  # (B, T, 3, H, K)
        return split.transpose(-4, -2).unbind(-3)  # (B, H, 3, T, K) -> (B, H, T, K)

    def merge(self, y: Tensor) -> Tensor:
        """Heads (..., H, T, K) side by side, then the output projection: (..., T, D)."""
        return self.out(y.transpose(-3, -2).flatten(-2))

    def cache(self, x: Tensor) -> Tensor:
        """Keys or values (B, H, T, K) with room for all positions, (B, H, L, K).

        Zeros, not empty: a masked slot enters products with weight 0, and 0 * nan = nan.
        """
        return F.pad(x, (0, 0, 0, self.max_len - x.shape[2]))

    def recent(self, x: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """What the convolution keeps after lengths[b] tokens of row b of x (B, T, D)."""
        return self.convolution.recent(x, lengths, self.qkv)

    def project_step(
        self, x: Tensor, tensors: dict[str, Tensor] | None = None
    ) -> tuple[Tensor, ...]:
        """Queries, keys, values of one token a row: x (B, D) to (B, H, K) each.

        tensors: those of the state, of which the convolution's are updated in place.
        """
        qkv = self.convolution.step(self.qkv(x), tensors or {})
        return qkv.unflatten(-1, (self.parts, self.num_heads, -1)).unbind(1)

    def merge_step(self, y: Tensor) -> Tensor:
        """One token a row: heads (B, H, K) through the output projection to (B, D)."""
        return self.out(y.flatten(1))

    def rotary_at(self, positions: slice | Tensor) -> Tensor | None:
        """Cosines and sines of the positions, (2, ..., K / 2); None unless position is "rope"."""
        return self.rotary[:, positions] if self.position == "rope" else None

    def apply_rotary(self, x: Tensor) -> Tensor:
        """Turn queries or keys x (B, H, T, K) of positions 0..T-1 if `position` is "rope"."""
        if self.position != "rope":
            return x
        cos, sin = self.rotary[:, : x.shape[2]]  # (T, K / 2) each
        return rotate(x, cos, sin)

    def apply_rotary_step(self, x: Tensor, positions: Tensor) -> Tensor:
        """Turn x (B, H, K), row b at positions[b], if `position` is "rope"."""
        if self.position != "rope":
            return x
        cos, sin = self.rotary[:, positions].unsqueeze(2)  # (B, 1, K / 2) each
        return rotate(x, cos, sin)

    def mixing_flops(self, length: int) -> dict[str, int]:
        """The "mixing/..." terms of `flops`."""
        raise NotImplementedError

    def flops(self, length: int) -> dict[str, int]:
        """As `Mixer.flops`: projections, convolution and `mixing_flops`."""
        return {
            "linear/attention_qkv": 2 * self.parts * self.dim**2 * length,
            "linear/attention_out": 2 * self.dim**2 * length,
            **self.convolution.flops(length),
            **self.mixing_flops(length),
        }

    def step_flops(self, position: int) -> int:
        """FLOPs of one `step`: what the token at this position adds to a forward pass."""
        return sum(self.flops(position + 1).values()) - sum(self.flops(position).values())


def overrides(mixer: Mixer, base: type[Mixer], *methods: str) -> bool:
    """Whether the mixer's class changes one of these methods of its parent `base`: a form that
    does without them is then not its own."""
    return any(getattr(type(mixer), name) is not getattr(base, name) for name in methods)


# All but cuDNN's, which PyTorch prefers on H100 and H200: it plans anew for every shape it meets,
# half a second each, and trimmed batches have a hundred widths.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def fused_attention(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """`scaled_dot_product_attention` with its options, in v's type; on a CPU at least in float32.

    PyTorch's bf16 kernel for CPUs is slower than its float32 one for heads up to 64 wide (forward
    and backward, L 87, K 16: 21 ms against 7, conversions included; L 221, K 32: 38 against 27).
    """
    if q.device.type != "cpu":
        with sdpa_kernel(KERNELS):
            return F.scaled_dot_product_attention(q, k, v, **options)
    with without_autocast(q):
        y = F.scaled_dot_product_attention(widened(q), widened(k), widened(v), **options)
    return y.to(v.dtype)
