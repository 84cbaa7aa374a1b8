"""`python -m benchmarks ceiling` and `side_by_side` in miniature on a CPU."""

import json

import pytest
import torch

from benchmarks import ceiling, side_by_side
from common import RunError, UserError
from models.flops import training_step_flops

CPU = torch.device("cpu")


def test_a_small_run_from_steps_to_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(ceiling.MATMUL, "cpu", (64, 2))
    path = tmp_path / "ceiling.json"
    words = f"dims=16 lengths=23 models=standard,linear batch=2 seconds=0.01 record={path}"
    ceiling.main(words.split())
    record = json.loads(path.read_text())
    assert {(row["recipe"], row["model"]) for row in record["rows"]} == {
        (recipe, model) for recipe in ("fast", "paper") for model in ("standard", "linear")
    }
    for row in record["rows"]:
        seconds = row["seconds_per_step"]
        assert row["tokens_per_second"] == pytest.approx(2 * 23 / seconds)
        net = ceiling.build_model(row["model"], ceiling.VOCABULARY, 23, 16)
        tflops = 2 * training_step_flops(net.flops(23)) / seconds / 1e12
        assert row["tflops"] == pytest.approx(tflops)
        most = record["matmul_tflops"][row["precision"]]
        assert row["share_of_ceiling"] == pytest.approx(tflops / most)
    assert "of ceiling" in capsys.readouterr().out


def test_every_step_is_the_trainers_and_moves_the_weights():
    net = ceiling.build_model("linear", ceiling.VOCABULARY, 11, 16)
    before = net.head.weight.detach().clone()
    recipe = ceiling.cell_config("recipe=fast").recipe
    ceiling.repeat(ceiling.endless_step(net, recipe, 4, 11), 12)  # three epochs of four batches
    assert not torch.equal(net.head.weight, before) and net.head.weight.isfinite().all()


def test_a_batch_that_does_not_fit_is_halved():
    tried = []

    def takes_at_most_100(size):
        tried.append(size)
        if size > 100:
            raise torch.OutOfMemoryError
        return 0.5

    assert ceiling.largest_that_fits(512, takes_at_most_100) == (64, 0.5)
    assert tried == [512, 256, 128, 64]

    def never(size):
        raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError):
        ceiling.largest_that_fits(512, never)


@pytest.mark.parametrize("word", ["models=nonsense", "compile=perhaps"])
def test_an_unknown_choice_is_refused(word):
    with pytest.raises(UserError, match=f"{word}: must be among"):
        ceiling.main([word])


def test_processes_side_by_side_add_up(tmp_path):
    path = tmp_path / "side.json"
    words = f"processes=2 dims=16 length=11 batch=2 seconds=0.2 record={path}"
    side_by_side.main(words.split())
    rows = json.loads(path.read_text())["rows"]
    assert [(row["dim"], row["processes"]) for row in rows] == [(16, 2)]
    assert all(row["tokens_per_second"] > 0 for row in rows)


def test_a_process_that_fails_says_why():
    options = side_by_side.Options(recipe="nonsense", length=11)
    with pytest.raises(RunError, match=r"D=16, 1 processes: .*nonsense"):
        side_by_side.tokens_per_second(16, 1, options)
