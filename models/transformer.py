"""The decoder-only transformer around a token mixer (Yang et al. 2024, section 6)."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from common import UserError
from models.attention import angles
from models.mixer import GenerationState, Mixer, Role, xavier_uniform
from models.packing import Packing

State = list[GenerationState]  # one per layer
SINUSOIDS_RMS = 0.5**0.5  # of sines and cosines, at any width


class Transformer(nn.Module):
    """Embedding and positions, LayerNorm, pre-norm blocks, LayerNorm, vocabulary head.

    vocab_size (V), max_len (L, the longest input), dim (D), num_layers (M), num_heads (H). `mixer`
    makes one layer's mixer from dim, num_heads, max_len, dropout and position, e.g.
    `functools.partial(SparseAttention, block_size=8)`; a list is used in turn. Dropout acts on the
    embedding, on residual branches and on softmax weights, as in CoT_benchmark (Feng et al. 2023).
    `line_ends` are the tokens that end a line (default: padding). Matrices outside mixers start
    Xavier-uniform. Raises UserError for an odd dim.
    """

    sinusoids: Tensor  # (L, D)
    is_line_end: Tensor  # (V,)

    def __init__(
        self,
        vocab_size: int,
        max_len: int,
        dim: int,
        num_layers: int,
        num_heads: int,
        mixer: Callable[..., Mixer] | Sequence[Callable[..., Mixer]],
        dropout: float = 0.0,
        position: str = "sinusoidal",
        line_ends: Sequence[int] = (0,),
    ):
        super().__init__()
        if dim % 2:
            raise UserError(f"dim={dim} is odd: positions need pairs of channels")
        self.vocab_size, self.max_len, self.dim = vocab_size, max_len, dim
        ends = torch.zeros(vocab_size, dtype=torch.bool)
        ends[list(line_ends)] = True
        self.register_buffer("is_line_end", ends, persistent=False)
        self.embedding = nn.Embedding(vocab_size, dim)
        added = sinusoids(max_len, dim) * (position == "sinusoidal")
        self.register_buffer("sinusoids", added, persistent=False)
        self.embedding_norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        shared = {"dim": dim, "num_heads": num_heads, "max_len": max_len}
        makers = [mixer] if callable(mixer) else mixer
        mixers = [
            makers[layer % len(makers)](**shared, dropout=dropout, position=position)
            for layer in range(num_layers)
        ]
        blocks = nn.ModuleList(Block(layer, dim, dropout) for layer in mixers)
        self.blocks = cast("Sequence[Block]", blocks)
        self.final_norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab_size)
        xavier_uniform(self.embedding)
        xavier_uniform(self.head)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, T, V) after each of `tokens` (B, T), of any integer type."""
        return self.head(self.hidden(tokens))

    def hidden(self, tokens: Tensor, packing: Packing | None = None) -> Tensor:
        """The final LayerNorm's output, (B, T, D); with `packing`, tokens (N,) to (N, D). Apply
        `head` where logits are needed."""
        x, ends = self.dropout(self.embed(tokens, packing)), self.is_line_end[tokens.long()]
        for block in self.blocks:
            x = block(x, ends, packing)
        return self.final_norm(x)

    def embed(self, tokens: Tensor, packing: Packing | None = None) -> Tensor:
        """Normalised embedding with positions: tokens (B, T) to (B, T, D). UserError if T > L."""
        width = tokens.shape[1] if packing is None else packing.longest
        if width > self.max_len:
            raise UserError(f"{width} tokens are more than this model's max_len={self.max_len}")
        added = self.sinusoids[:width] if packing is None else self.sinusoids[packing.positions]
        return self.embedding_norm(self.embedding(tokens.long()) + added)

    def prefill(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, State]:
        """Read prompts: the first lengths[b] >= 1 of tokens (B, T). Returns logits (B, V) after
        each row's last token, and the state. Call under `eval()` and `no_grad()`, like `step`."""
        x, ends = self.embed(tokens), self.is_line_end[tokens.long()]  # (B, T, D), (B, T)
        state: State = []
        for block in self.blocks:
            x, layer_state = block.prefill(x, ends, lengths)
            state.append(layer_state)
        last = x[torch.arange(len(x), device=x.device), lengths - 1]  # (B, D)
        return self.head(self.final_norm(last)), state

    def step(self, tokens: Tensor, positions: Tensor, state: State) -> Tensor:
        """Read one more token per row: tokens (B,) at 0-based positions (B,), the number read so
        far; returns logits (B, V) and updates `state` in place."""
        x = self.embedding_norm(self.embedding(tokens.long()) + self.sinusoids[positions])  # (B, D)
        ends = self.is_line_end[tokens.long()]
        for block, layer_state in zip(self.blocks, state, strict=True):
            x = block.step(x, ends, positions, layer_state)
        return self.head(self.final_norm(x))

    def parameter_roles(self) -> dict[str, Role]:
        """The role of every parameter, by its name in `named_parameters`. UserError if a mixer
        states a role for a parameter it does not have."""
        matrices = {id(layer.weight) for layer in self.modules() if isinstance(layer, nn.Linear)}
        roles = {
            name: Role("hidden" if id(parameter) in matrices else "vector")
            for name, parameter in self.named_parameters()
        }
        roles |= {"embedding.weight": Role("embedding"), "head.weight": Role("head")}
        for number, block in enumerate(self.blocks):
            for name, role in block.mixer.parameter_roles().items():
                key = f"blocks.{number}.mixer.{name}"
                if key not in roles:
                    kind = type(block.mixer).__name__
                    raise UserError(f"{kind}.parameter_roles: {name!r} is not a parameter")
                roles[key] = role
        return roles

    def flops(self, length: int) -> dict[str, int]:
        """FLOPs of a forward pass over `length` tokens by term, 2 per multiply-add: "linear/..."
        the blocks' linear layers, "mixing/..." token mixing, "head" all logits (`models.flops`)."""
        terms = Counter(head=2 * self.dim * self.vocab_size * length)
        for block in self.blocks:
            terms.update(block.flops(length))
        return terms

    def state_bytes(self, length: int) -> int:
        """Bytes of one sequence's state after `length` tokens, all layers, in float32."""
        return sum(block.mixer.state_bytes(length) for block in self.blocks)


class Block(nn.Module):
    """x + mixer(LayerNorm(x)), then x + FFN(LayerNorm(x)); FFN width 4D, GELU. x is (B, T, D) or
    packed (N, D); `ends` of the same shape without D marks tokens that end a line."""

    mixer: Mixer

    def __init__(self, mixer: Mixer, dim: int, dropout: float):
        super().__init__()
        self.dim, self.mixer_norm, self.mixer = dim, nn.LayerNorm(dim), mixer
        self.ffn_norm = nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.dropout = nn.Dropout(dropout)
        xavier_uniform(self.ffn)

    def forward(self, x: Tensor, ends: Tensor, packing: Packing | None = None) -> Tensor:
        normed, options = self.mixer_norm(x), self.mixer_options(ends)
        if packing is None:
            mixed = self.mixer(normed, **options)
        else:
            mixed = self.mixer.forward_packed(normed, packing, **options)
        return self.add_branches(x, mixed)

    def add_branches(self, x: Tensor, mixed: Tensor) -> Tensor:
        """x plus the mixer's output, plus the FFN of the sum; (..., D)."""
        x = x + self.dropout(mixed)
        return x + self.dropout(self.ffn(self.ffn_norm(x)))

    def prefill(self, x: Tensor, ends: Tensor, lengths: Tensor) -> tuple[Tensor, GenerationState]:
        mixed, state = self.mixer.prefill(self.mixer_norm(x), lengths, **self.mixer_options(ends))
        return self.add_branches(x, mixed), state

    def step(self, x: Tensor, ends: Tensor, positions: Tensor, state: GenerationState) -> Tensor:
        state.extent += 1
        mixed = self.mixer.step(self.mixer_norm(x), positions, state, **self.mixer_options(ends))
        return self.add_branches(x, mixed)

    def mixer_options(self, ends: Tensor) -> dict[str, Tensor]:
        return {"ends": ends} if self.mixer.sees_lines else {}

    def flops(self, length: int) -> dict[str, int]:
        ffn = 2 * 4 * self.dim**2 * length
        return {**self.mixer.flops(length), "linear/ffn_in": ffn, "linear/ffn_out": ffn}


def sinusoids(max_len: int, dim: int) -> Tensor:
    """(max_len, dim): sines in even columns, cosines in odd (Vaswani et al. 2017, 3.5)."""
    theta = angles(max_len, dim)  # (max_len, dim / 2)
    return torch.stack((theta.sin(), theta.cos()), dim=-1).flatten(1)  # (max_len, dim)


@torch.no_grad()
def scale_embedding(embedding: nn.Embedding, ratio: float | None) -> None:
    """Scale the embedding to `ratio` times the RMS of the sinusoids; None leaves it. Xavier's
    values shrink with V + D: at V = 20 the ratio is 0.33 at D = 16 and 0.09 at D = 512."""
    if ratio is not None:
        weight = embedding.weight
        weight.mul_(ratio * SINUSOIDS_RMS / weight.square().mean().sqrt())
