"""A long evaluation, cut off and called again."""

import shutil

import pytest
import torch
from small_models import TASKS, small_model

from common import UserError
from evaluation import parts
from evaluation.argmax import LARGEST_BATCH
from evaluation.judge import evaluate


def test_an_evaluation_cut_off_goes_on_part_by_part(tmp_path, monkeypatch):
    """The same result as in one go; what is done is not generated again, unless weights change."""
    task = TASKS["arithmetic"]()
    model, sequences = small_model(task), task.draw(0, 0, 0, 20)
    whole = evaluate(model, task, sequences)
    monkeypatch.setitem(parts.PART, "cpu", 7)
    generated = []
    plain = parts.generate

    def counted(model, sequences, *more):
        generated.append(len(sequences))
        return plain(model, sequences, *more)

    monkeypatch.setattr(parts, "generate", counted)
    folder = tmp_path / "parts"

    def cut_off(done, total):
        assert total == 20
        if done > 10:
            raise InterruptedError

    def go_on(seen):
        return evaluate(model, task, sequences, 1024, "cpu", seen, folder)

    with pytest.raises(InterruptedError):
        go_on(cut_off)
    (kept,) = folder.iterdir()
    assert generated == [7, 7] and kept.name.endswith("-0.npz")
    result = go_on(lambda done, total: None)
    assert generated == [7, 7, 7, 6] and len(list(folder.iterdir())) == 3
    assert go_on(lambda done, total: None).errors == whole.errors
    assert generated == [7, 7, 7, 6]  # a call whose result was lost costs nothing again
    shutil.rmtree(folder)
    for key in ("answer_accuracy", "chain_exact_match", "n_test", "certified", "errors"):
        assert getattr(result, key) == getattr(whole, key)
    with pytest.raises(InterruptedError):
        go_on(cut_off)
    generated.clear()
    model.head.weight.data += 1e-3 * torch.randn_like(model.head.weight)
    go_on(lambda done, total: None)
    assert generated == [7, 7, 6]


def test_a_sequence_too_long_is_refused_before_anything_is_generated(tmp_path, monkeypatch):
    task = TASKS["arithmetic"]()
    sequences = task.draw(0, 0, 0, 20)
    fits = int(sequences.lengths[:19].max()) - 1
    sequences.lengths[19] = fits + 2
    model = small_model(task, max_len=fits)
    monkeypatch.setitem(parts.PART, "cpu", 7)
    with pytest.raises(UserError, match=f"{fits + 1} tokens.* max_len={fits}"):
        evaluate(model, task, sequences, folder=tmp_path / "parts")
    assert not (tmp_path / "parts").exists()


def test_a_gpu_keeps_larger_parts_of_full_batches():
    assert parts.part_size("cpu") == parts.part_size("mps") == 10_000
    larger = parts.part_size(torch.device("cuda", 1))
    assert 10_000 < larger < 100_000 and larger % LARGEST_BATCH["cuda"] == 0
