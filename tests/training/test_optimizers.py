import pytest
import torch
from tiny import tiny_model, tiny_recipe, tiny_trainer

from tasks.arithmetic import Arithmetic
from training import optimizers
from training.optimizers import build_optimizer, muon_dtype

TASK = Arithmetic(2)


@pytest.mark.parametrize("fused", [False, True])
def test_adamw_is_adamw_written_out(fused, monkeypatch):
    """Decoupled weight decay, bias-corrected moments (Loshchilov and Hutter 2019, algorithm 2)."""
    monkeypatch.setattr(optimizers, "FUSED_ON", ("cpu",) if fused else ())
    recipe = tiny_recipe(optimizer="adamw", weight_decay=0.1, betas=(0.9, 0.95))
    model = tiny_model(TASK)
    expected = [p.detach().double() for p in model.parameters()]
    first, second = ([torch.zeros_like(p) for p in expected] for _ in range(2))
    optimizer = build_optimizer(model, recipe)
    for step in range(1, 4):
        rate = 0.01 * step
        optimizer.set_learning_rate(rate)
        for p, e, m, v in zip(model.parameters(), expected, first, second, strict=True):
            p.grad = torch.randn_like(p)
            gradient = p.grad.double()
            m.mul_(0.9).add_(0.1 * gradient)
            v.mul_(0.95).add_(0.05 * gradient**2)
            corrected = m / (1 - 0.9**step) / ((v / (1 - 0.95**step)).sqrt() + 1e-8)
            e.sub_(rate * (corrected + 0.1 * e))
        optimizer.step()
    for p, e in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.detach().double(), e, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_muon_works_in_the_precision_of_the_forward_pass_on_a_gpu(tmp_path, precision, monkeypatch):
    wanted = getattr(torch, precision)
    assert muon_dtype(torch.device("cuda"), precision) == wanted
    assert muon_dtype(torch.device("cpu"), precision) == torch.float32
    monkeypatch.setattr(optimizers, "BFLOAT16_ON", ("cpu",))
    trainer = tiny_trainer(tmp_path, TASK, optimizer="muon", precision=precision)
    muon = trainer.optimizer.parts[0][0]
    assert muon.dtype == wanted
    trainer.fit()
    for held in muon.state.values():
        assert held["momentum"].dtype == torch.float32
    assert all(p.dtype == torch.float32 for p in trainer.model.parameters())
