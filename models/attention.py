"""Shared code of attention mixers: projections, a short convolution, rotary positions."""

import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from common import UserError
from models.mixer import GenerationState, Mixer, Role, upcast, without_autocast, xavier_uniform
from models.packing import MAX_KERNEL_LENGTH, PackedAttention, Packing

Convolution = Literal["none", "canon", "silu"]
Width = Annotated[int, Field(ge=2)]  # of a short convolution; 1 would be a scale per channel
# All but cuDNN's, which PyTorch prefers on H100 and H200: it replans for every new shape,
# half a second each, and trimmed batches have a hundred widths.
SDPA_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class ShortConvolution(nn.Module):
    """c_t = Σ_{s<W} w_s ⊙ x_{t-s}, zeros before the first token; C channels, W `width`.

    "canon": y_t = x_t + c_t, Canon-B when applied to queries, keys and values (Allen-Zhu 2025,
    arXiv 2512.17351); "silu": y_t = SiLU(c_t), as in Mamba (Gu and Dao 2023) and DeltaNet (Yang et
    al. 2024, arXiv 2406.06484); "none": y_t = x_t, no parameters, no state. The kernel starts
    uniform in ±1/√W, as PyTorch's `Conv1d`, without a bias.
    """

    def __init__(self, channels: int, form: Convolution = "none", width: int = 4):
        super().__init__()
        self.channels, self.form, self.width = channels, form, width
        kernel = torch.empty(channels, width)  # its last column is for the token itself
        self.kernel = None if form == "none" else nn.Parameter(kernel)
        if self.kernel is not None:
            nn.init.uniform_(self.kernel, -(width**-0.5), width**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, C) to (B, T, C), in at least float32."""
        if self.kernel is None:
            return x
        with without_autocast(x):
            rows = F.pad(upcast(x).transpose(1, 2), (self.width - 1, 0))  # (B, C, W - 1 + T)
            mixed = F.conv1d(rows, self.kernel[:, None], groups=self.channels)  # (B, C, T)
            return self.activate(x, mixed.transpose(1, 2))

    def forward_packed(self, x: Tensor, packing: Packing) -> Tensor:
        """`forward` on packed sequences, x (N, C)."""
        return x if self.kernel is None else packing.map_padded(self, x)

    def activate(self, x: Tensor, mixed: Tensor) -> Tensor:
        return (upcast(x) + mixed if self.form == "canon" else F.silu(mixed)).to(x.dtype)

    def recent(
        self, x: Tensor, lengths: Tensor, projection: Callable[[Tensor], Tensor]
    ) -> dict[str, Tensor]:
        """{"recent": (B, W - 1, C)}, the projections of the last W - 1 tokens before lengths[b] of
        x (B, T, D), zeros where there are none; {} for "none"."""
        if self.kernel is None:
            return {}
        positions = lengths[:, None] - torch.arange(self.width - 1, 0, -1, device=x.device)
        rows = torch.arange(len(x), device=x.device)[:, None]
        kept = projection(x[rows, positions.clamp(min=0)])  # (B, W - 1, C)
        return {"recent": kept * (positions >= 0)[..., None]}

    def step(self, x: Tensor, tensors: dict[str, Tensor]) -> Tensor:
        """One more token per row, x (B, C) to (B, C); updates tensors["recent"]."""
        if self.kernel is None:
            return x
        window = torch.cat((tensors["recent"], x[:, None]), dim=1)  # (B, W, C)
        tensors["recent"].copy_(window[:, 1:])
        with without_autocast(x):
            return self.activate(x, (upcast(window) * self.kernel.T).sum(1))

    def flops(self, length: int) -> dict[str, int]:
        if self.kernel is None:
            return {}
        return {"mixing/convolution": 2 * self.width * self.channels * length}

    def state_bytes(self) -> int:
        return 0 if self.kernel is None else 4 * (self.width - 1) * self.channels


class AttentionMixer(Mixer):
    """Project to queries, keys and values, attend in each head, project the output.

    With `convolution` "canon" or "silu", the projections first pass a `ShortConvolution` over
    `convolution_width` tokens. Subclasses define `attend` and `mixing_flops`; for generation
    `state_after`, `attend_step` and `state_bytes`; for a kernel on packed tokens `packed_kernel`,
    with `has_kernel = True`.
    `parts` is the number of projections, `drops_weights` whether dropout acts on attention weights;
    `ends` holds the ends of lines (B, T) for a mixer that sees them.
    """

    parts = 3
    takes_rope = True
    drops_weights = False
    rotary: Tensor  # (2, L, K / 2), under position="rope"
    qkv: Callable[[Tensor], Tensor]

    def __init__(
        self,
        *sizes: Any,
        convolution: Convolution = "none",
        convolution_width: Width = 4,
        **shared: Any,
    ):
        super().__init__(*sizes, **shared)
        self.qkv = qkv = nn.Linear(self.dim, self.parts * self.dim)
        self.out = nn.Linear(self.dim, self.dim)
        self.register_rotary(self.head_dim)
        xavier_uniform(qkv, self.parts)
        xavier_uniform(self.out)
        channels = self.parts * self.dim
        self.convolution = ShortConvolution(channels, convolution, convolution_width)

    def parameter_roles(self) -> dict[str, Role]:
        return {"qkv.weight": Role("hidden", parts=self.parts)}

    def forward(self, x: Tensor, **ends: Any) -> Tensor:
        return self.merge_heads(self.attend(*self.project(x), **ends))  # each (B, H, T, K)

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values of x (B, T, D), each (B, H, T, K)."""
        parts = self.split_heads(self.convolution(self.qkv(x)))  # (B, T, H, K) each
        return tuple(part.transpose(1, 2) for part in parts)

    def split_heads(self, qkv: Tensor) -> tuple[Tensor, ...]:
        """Split projections (..., 3D) into q, k, v, each (..., H, K)."""
        return qkv.unflatten(-1, (self.parts, self.num_heads, -1)).unbind(-3)

    def attend(self, *parts: Any, **named: Any) -> Tensor:
        """Causal attention of q, k, v (B, H, T, K), not yet rotated, to (B, H, T, K)."""
        raise NotImplementedError

    def merge_heads(self, y: Tensor) -> Tensor:
        """Concatenate the heads of (B, H, T, K) and project: (B, T, D)."""
        return self.out(y.transpose(1, 2).flatten(2))

    def forward_packed(self, x: Tensor, packing: Packing, **ends: Any) -> Tensor:
        if (
            not vars(type(self)).get("has_kernel")  # a subclass may compute something else
            or (self.drops_weights and self.training and self.dropout > 0)
            or self.position == "rope"
            or x.dtype == torch.float64
            or packing.longest > MAX_KERNEL_LENGTH  # padding is faster
        ):
            return super().forward_packed(x, packing, **ends)
        qkv = self.convolution.forward_packed(self.qkv(x), packing)  # (N, 3D)
        qkv = qkv.unflatten(-1, (self.parts, self.num_heads, -1))  # (N, 3, H, K)
        return self.out(self.packed_kernel(qkv.float(), packing, **ends).to(qkv.dtype).flatten(1))

    def packed_kernel(self, qkv: Tensor, packing: Packing) -> Tensor:
        """`attend` on packed q, k, v (N, 3, H, K) in float32, to (N, H, K); no positions or
        dropout."""
        raise NotImplementedError

    def prefill(self, x: Tensor, lengths: Tensor, **ends: Any) -> tuple[Tensor, GenerationState]:
        parts = self.project(x)  # (B, H, T, K) each
        tensors = self.state_after(lengths, *parts, **ends)
        tensors |= self.convolution.recent(x, lengths, self.qkv)
        y = self.merge_heads(self.attend(*parts, **ends))
        return y, GenerationState(tensors, x.shape[1])

    def step(self, x: Tensor, positions: Tensor, state: GenerationState, **ends: Any) -> Tensor:
        parts = self.split_heads(self.convolution.step(self.qkv(x), state.tensors))  # (B, H, K)
        return self.out(self.attend_step(positions, state, *parts, **ends).flatten(1))

    def state_after(self, lengths: Tensor, *parts: Any, **named: Any) -> dict[str, Tensor]:
        """The state after the first lengths[b] tokens of each row of q, k, v (B, H, T, K)."""
        raise NotImplementedError

    def attend_step(
        self, positions: Tensor, state: GenerationState, *parts: Any, **named: Any
    ) -> Tensor:
        """One more token per row, q, k, v (B, H, K), to (B, H, K); updates the state's tensors."""
        raise NotImplementedError

    def register_rotary(self, width: int, name: str = "head_dim") -> None:
        """Under position="rope", store cosines and sines of RoFormer's angles (Su et al. 2021),
        (2, L, width / 2). UserError for an odd width, called `name`."""
        if self.position == "rope":
            if width % 2:
                raise UserError(f"position=rope needs an even {name}, not {width}")
            theta = angles(self.max_len, width)
            self.register_buffer("rotary", torch.stack((theta.cos(), theta.sin())), False)

    def rotary_at(self, positions: slice | Tensor) -> Tensor | None:
        """Cosines and sines at `positions`, (2, ..., K / 2); None unless position is "rope"."""
        return self.rotary[:, positions] if self.position == "rope" else None

    def apply_rotary(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """x (..., K) rotated by `positions`, broadcastable to (...), if position is "rope". None
        means 0 to T - 1 along the second-last axis."""
        table = self.rotary_at(slice(x.shape[-2]) if positions is None else positions)
        return x if table is None else rotate(x, table)

    def mixing_flops(self, length: int) -> dict[str, int]:
        raise NotImplementedError

    def flops(self, length: int) -> dict[str, int]:
        layers = (layer for layer in self.modules() if isinstance(layer, nn.Linear))
        weights = sum(layer.weight.numel() for layer in layers)
        return {
            "linear/mixer": 2 * weights * length,
            **self.convolution.flops(length),
            **self.mixing_flops(length),
        }


class SoftmaxAttention(AttentionMixer):
    """Softmax attention. The state is a ring of the last `window` keys and values (default: all),
    position t in slot t mod their number. A subclass that sets `window` must also mask `attend`;
    `bias` (L, L), added to scores, masks the kernel's."""

    drops_weights = True
    window = sys.maxsize
    bias: Any = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.softmax(q, k, v, is_causal=True)

    def softmax(self, q: Tensor, k: Tensor, v: Tensor, **mask: Any) -> Tensor:
        """PyTorch's fused attention with rotary positions and dropout, in float32 on a CPU: its
        bfloat16 kernel there is slower for heads up to 64 wide (forward and backward, L 87, K 16:
        21 ms against 7)."""
        dropout = self.dropout if self.training else 0.0
        q, k = self.apply_rotary(q), self.apply_rotary(k)
        if q.device.type != "cpu":
            with sdpa_kernel(SDPA_BACKENDS):
                return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, **mask)
        with without_autocast(q):
            q, k, values = upcast(q), upcast(k), upcast(v)
            y = F.scaled_dot_product_attention(q, k, values, dropout_p=dropout, **mask)
        return y.to(v.dtype)

    def packed_kernel(self, qkv: Tensor, packing: Packing) -> Tensor:
        return PackedAttention.apply(qkv, packing, True, self.bias)

    def state_after(self, lengths: Tensor, q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
        source = self.ring_positions(lengths - 1)  # (B, ring)
        keys = self.in_slots(self.apply_rotary(k), source)
        return {"keys": keys, "values": self.in_slots(v, source)}

    def in_slots(self, x: Tensor, source: Tensor) -> Tensor:
        """Positions `source` (B, ring) of x (B, H, T, K), (B, H, ring, K). Empty slots are
        zeros, not uninitialised: a masked slot has weight 0, and 0 * nan = nan."""
        source = source[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3])
        return x.gather(2, source.clamp(min=0)) * (source >= 0)

    def ring_positions(self, positions: Tensor) -> Tensor:
        """The position in each slot after writing position p, (B,) to (B, ring); below 0: empty."""
        slots = torch.arange(min(self.window, self.max_len), device=positions.device)
        return positions[:, None] - (positions[:, None] - slots) % len(slots)

    def attend_step(
        self, positions: Tensor, state: GenerationState, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        q, k = (self.apply_rotary(part, positions[:, None]) for part in (q, k))
        self.write(state.tensors["keys"], k, positions)
        self.write(state.tensors["values"], v, positions)
        visible = self.visible(positions, state)  # (B, E)
        keys = state.tensors["keys"][:, :, : visible.shape[1]]  # (B, H, E, K)
        values = state.tensors["values"][:, :, : visible.shape[1]]
        mask = visible[:, None, None]  # (B, 1, 1, E)
        return F.scaled_dot_product_attention(q[:, :, None], keys, values, mask).squeeze(2)

    def write(self, held: Tensor, new: Tensor, positions: Tensor) -> None:
        """Write new (B, H, K), at positions[b], into held (B, H, slots, K)."""
        rows = torch.arange(len(new), device=new.device)
        held[rows, :, self.slot(positions)] = new

    def slot(self, positions: Tensor) -> Tensor:
        return positions % min(self.window, self.max_len)

    def visible(self, positions: Tensor, state: GenerationState) -> Tensor:
        """(B, E): which of the E slots written so far are visible from positions (B,)."""
        return self.ring_positions(positions)[:, : state.extent] >= 0

    def pairs(self, length: int) -> int:
        """The number of query-key pairs scored in generating `length` tokens."""
        inside = min(length, self.window)
        return inside * (inside + 1) // 2 + (length - inside) * self.window

    def slots(self, length: int) -> int:
        """The number of tokens held after `length` of them."""
        return min(length, self.window)

    def mixing_flops(self, length: int) -> dict[str, int]:
        """Each pair is K wide in H heads."""
        pairs = self.pairs(length)
        return {"mixing/scores": 2 * pairs * self.dim, "mixing/values": 2 * pairs * self.dim}

    def state_bytes(self, length: int) -> int:
        """A key and a value of D float32 numbers per token held."""
        return 2 * 4 * self.dim * self.slots(length) + self.convolution.state_bytes()


def angles(max_len: int, dim: int) -> Tensor:
    """(max_len, dim / 2): position times 10000^(-2a / dim), computed in float64."""
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    return torch.outer(torch.arange(max_len, dtype=torch.float64), frequencies).float()


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotate pairs (x[2a], x[2a + 1]) of x (..., K) by table (2, ..., K / 2); RoFormer, eq. 34."""
    (even, odd), (cos, sin) = (x[..., 0::2], x[..., 1::2]), table
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return turned.flatten(-2).to(x.dtype)  # (..., K / 2, 2) -> (..., K)
