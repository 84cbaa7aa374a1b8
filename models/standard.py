"""Softmax attention over all tokens so far (Vaswani et al. 2017; Yang et al. 2024, eq. 1)."""

from models.attention import SoftmaxAttention


class StandardAttention(SoftmaxAttention):
    """Token i attends to every j <= i. Quadratic in time; its state grows with the sequence."""

    has_kernel = True
