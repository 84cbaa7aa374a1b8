"""What a model costs, from the named terms of `Transformer.flops`.

Two conventions stand side by side. `linear_layer_flops` is the one in which Table 2 of Yang et al.
(2024) can be rebuilt: linear layers of the blocks only. `total_flops` adds the token mixing, the
very cost that efficient mixers save, and the vocabulary head. Both count 2 FLOPs per multiply-add.
Of the transformer and the mixers of this folder they leave out what is not a product of matrices:
embedding look-up, biases, LayerNorm, GELU, softmax, feature maps, rotations, dropout. Mixers
without a formula of their own are counted operator by operator, elementwise work included, as a
term apart (`models.counting`).
"""

from models.transformer import Transformer


def linear_layer_flops(terms: dict[str, int]) -> int:
    """FLOPs of the blocks' linear layers, as in Table 2: 2 · 12 · M · D² · L for q, k, v, o, FFN.

    That Table 2 follows this convention is inferred from its figures, which agree within 5 %; the
    paper does not say so.
    """
    return sum(count for name, count in terms.items() if name.startswith("linear/"))


def total_flops(terms: dict[str, int]) -> int:
    """Every term: linear layers, token mixing and the vocabulary head."""
    return sum(terms.values())


def mixing_flops(terms: dict[str, int]) -> int:
    """FLOPs of the token mixing."""
    return sum(count for name, count in terms.items() if name.startswith("mixing/"))


def bound_ratio(model: Transformer, length: int) -> float:
    """Mixing FLOPs over M H T²: what each pair of tokens costs in a layer and head.

    M H T^(2 - o(1)) steps are necessary for softmax attention with few channels a head, under the
    strong exponential time hypothesis ("LHN^(2 - o(1))", arXiv 2603.11332). The ratio of a mixer
    that computes another function may fall below any constant, and refutes nothing.
    """
    heads = sum(block.mixer.num_heads for block in model.blocks)  # M H
    return mixing_flops(model.flops(length)) / (heads * length**2)


def training_step_flops(terms: dict[str, int]) -> int:
    """One forward and one backward pass, taken as 3 forward passes (Kaplan et al. 2020, 2.1)."""
    return 3 * total_flops(terms)
