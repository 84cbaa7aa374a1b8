import pytest
import torch

from training.muon import BatchedMuon, orthogonalise

SHAPES = [(12, 4), (4, 4), (4, 12), (12, 4), (4, 4), (7, 7)]


def parameters():
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 0.02), (torch.bfloat16, 0.01)])
def test_same_updates_as_torchs_own_muon(weight_decay, dtype, tolerance):
    """Torch orthogonalises in bfloat16, hence the tolerance."""
    ours, theirs = parameters(), parameters()
    batched = BatchedMuon(ours, lr=0.01, weight_decay=weight_decay, dtype=dtype)
    reference = torch.optim.Muon(
        theirs, lr=0.01, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"
    )
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = one.grad.clone()
        batched.step()
        reference.step()
    for one, other, start in zip(ours, theirs, parameters(), strict=True):
        moved = (other - start).norm()
        assert (one - other).norm() < tolerance * moved


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 5, 20), (2, 20, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_singular_values_come_near_one(shape, dtype):
    generator = torch.Generator().manual_seed(1)
    matrices = torch.randn(shape, generator=generator).to(dtype)
    values = torch.linalg.svdvals(orthogonalise(matrices).float())
    assert values.min() > 0.6 and values.max() < 1.3


def test_a_zero_gradient_moves_nothing():
    assert torch.equal(orthogonalise(torch.zeros(2, 3, 3)), torch.zeros(2, 3, 3))


def test_state_survives_saving():
    whole, parts = parameters(), parameters()
    one, other = BatchedMuon(whole, lr=0.1), BatchedMuon(parts, lr=0.1)
    for step in range(4):
        if step == 2:
            restored = BatchedMuon(parts, lr=0.1)
            restored.load_state_dict(other.state_dict())
            other = restored
        for p, q in zip(whole, parts, strict=True):
            p.grad = torch.full_like(p, step + 1.0) + p.detach()
            q.grad = torch.full_like(q, step + 1.0) + q.detach()
        one.step()
        other.step()
    assert all(torch.equal(p, q) for p, q in zip(whole, parts, strict=True))
