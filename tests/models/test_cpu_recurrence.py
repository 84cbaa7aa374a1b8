"""The recurrences of packed sequences against plain ones in float64, sequence by sequence."""

import numpy as np
import torch
from comparing import compare_functions
from hypothesis import given, settings
from hypothesis import strategies as st

from models.packing import PackedRecurrence, Packing

FORGETTING = {
    "nothing": lambda shape: None,
    "a head": lambda shape: -torch.rand(*shape[:2], 1),
    "a channel": lambda shape: -torch.rand(shape),
    "all or nothing": lambda shape: -torch.tensor([0.0, 1e-3, 1e4])[torch.randint(3, shape)],
}


def plain(q, k, v, strengths, log_decay, lengths):
    """S <- diag(exp g) S; S <- S + k u^T for every write; y = S^T q; one sequence after another."""
    rows, first = [], 0
    for length in lengths:
        state = q.new_zeros(q.shape[1], q.shape[2], q.shape[2])  # (H, K, V)
        for t in range(first, first + length):
            if log_decay is not None:
                state = state * log_decay[t].exp()[..., None]
            for j in range(k.shape[1]):
                u = v[t, j]
                if strengths is not None:
                    known = (state * k[t, j][..., None]).sum(1)
                    u = strengths[t, j][:, None] * (u - known)
                state = state + k[t, j][..., None] * u[:, None]
            rows.append((state * q[t][..., None]).sum(1))
        first += length
    return torch.stack(rows)


@settings(max_examples=35, deadline=None)
@given(
    st.lists(st.integers(1, 24), min_size=1, max_size=4).map(sorted),
    st.integers(1, 33), st.integers(1, 3), st.booleans(), st.sampled_from(sorted(FORGETTING)),
)  # fmt: skip
def test_output_and_gradients_equal_the_plain_recurrence(
    lengths, head_dim, writes, uses_delta_rule, forgets
):
    torch.manual_seed(0)
    q = torch.randn(sum(lengths), 2, head_dim)
    k, v = torch.randn(2, sum(lengths), writes, 2, head_dim)
    k = torch.nn.functional.normalize(k, dim=-1)
    strengths = 2 * torch.rand(sum(lengths), writes, 2) if uses_delta_rule else None
    packing = Packing(np.array(lengths))
    compare_functions(
        lambda *inputs: PackedRecurrence.apply(*inputs, packing),
        lambda *inputs: plain(*inputs, lengths),
        [q, k, v, strengths, FORGETTING[forgets](q.shape)],
        2e-5,
    )


def test_threads_share_the_sequences():
    given = [torch.randn(40, 2, 4), *torch.randn(2, 40, 1, 2, 4), None, None]
    packing = Packing(np.array([1, 3, 6, 10, 20]))
    alone = PackedRecurrence.apply(*given, packing)
    torch.set_num_threads(3)
    assert torch.equal(PackedRecurrence.apply(*given, packing), alone)


def test_filler_is_zero_and_gets_no_gradient():
    packing = Packing(np.array([2, 3]), size_step=8)
    q, k, v = torch.randn(3, 8, 1, 4)
    leaves = [x.detach().requires_grad_() for x in (q, k[:, None], v[:, None])]
    y = PackedRecurrence.apply(*leaves, None, None, packing)
    y.sum().backward()
    assert (y[5:] == 0).all() and all((x.grad[5:] == 0).all() for x in leaves)
    assert all((x.grad[:5] != 0).any() for x in leaves)
