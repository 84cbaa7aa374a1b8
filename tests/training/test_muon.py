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


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_stacked_matrices_are_orthogonalised_apart(decay):
    """One parameter of three parts moves as three parameters do; other shapes stay whole."""
    generator = torch.Generator().manual_seed(2)
    stacked = [torch.nn.Parameter(torch.randn(12, 4, generator=generator)) for _ in range(2)]
    apart = [torch.nn.Parameter(m.clone()) for p in stacked for m in p.detach().chunk(3)]
    whole = torch.nn.Parameter(torch.randn(12, 4, generator=generator))
    alone = torch.nn.Parameter(whole.detach().clone())
    groups = [{"params": [*stacked, whole], "parts": [3, 3, 1], "weight_decay": decay}]
    ours = BatchedMuon(groups, lr=0.01)
    theirs = BatchedMuon([*apart, alone], lr=0.01, weight_decay=decay)
    for _ in range(3):
        for p in (*stacked, whole):
            p.grad = torch.randn(p.shape, generator=generator)
        gradients = [matrix for p in stacked for matrix in p.grad.chunk(3)]
        for p, gradient in zip(apart, gradients, strict=True):
            p.grad = gradient.clone()
        alone.grad = whole.grad.clone()
        ours.step()
        theirs.step()
    torch.testing.assert_close(torch.cat(apart), torch.cat(stacked))
    torch.testing.assert_close(alone, whole)


def test_groups_keep_rates_and_decays_of_their_own():
    one, other = parameters()[:2]
    groups = [{"params": [one], "lr": 0.0}, {"params": [other], "weight_decay": 0.5}]
    muon = BatchedMuon(groups, lr=0.1)
    before = [p.detach().clone() for p in (one, other)]
    one.grad, other.grad = torch.ones_like(one), torch.zeros_like(other)
    muon.step()
    assert torch.equal(one, before[0])
    torch.testing.assert_close(other.detach(), before[1] * (1 - 0.1 * 0.5))


def test_a_parameter_without_a_gradient_stays_beside_one_with():
    one, other = parameters()[0], parameters()[0]
    before = one.detach().clone()
    other.grad = torch.ones_like(other)
    BatchedMuon([one, other], lr=0.1, weight_decay=0.0).step()
    assert torch.equal(one, before) and not torch.equal(other, before)
