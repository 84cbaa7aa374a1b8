import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import MIXERS, TASKS, plain_greedy, tiny_model, tiny_trainer

from errors import RunError
from evaluation import judge as evaluation
from evaluation.generation import generate, memory_for
from evaluation.judge import evaluate, judge, wilson_interval
from models.transformer import Transformer
from training import generation as generation_module


def written(generation):
    return [
        generation.tokens[row, : generation.lengths[row]].tolist()
        for row in range(len(generation.lengths))
    ]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Untrained, half-trained and trained models of every task and mixer, made once."""
    made = {}

    def model(task_name, mixer, steps):
        key = task_name, mixer, steps
        if key not in made:
            task = TASKS[task_name]()
            trainer = tiny_trainer(
                tmp_path_factory.mktemp("run"),
                task,
                mixer,
                steps=max(steps, 1),
                learning_rate=1e-2 if steps else 1e-9,
            )
            trainer.fit()
            made[key] = task, trainer.model
        return made[key]

    return model


@pytest.mark.parametrize("steps", [0, 40, 150])
@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("task_name", TASKS)
def test_certified_generation_is_plain_greedy_decoding(models, task_name, mixer, steps):
    task, model = models(task_name, mixer, steps)
    sequences = task.draw(0, 1, 0, 24)
    generation = generate(model, sequences)
    assert written(generation) == plain_greedy(model, sequences)


def test_the_memory_bound_does_not_change_the_outcome(models):
    task, model = models("arithmetic", "sparse", 150)
    sequences = task.draw(0, 1, 0, 60)
    wide, narrow = generate(model, sequences, 1024), generate(model, sequences, 0.05)
    assert written(wide) == written(narrow)


def note_looks(monkeypatch):
    """Return a list that fills with (level, rows) of every look at a batch."""
    looked = []
    look = generation_module._Engine._look

    def noting(engine, batch, part, level, found):
        looked.append((level, len(part)))
        return look(engine, batch, part, level, found)

    monkeypatch.setattr(generation_module._Engine, "_look", noting)
    return looked


def test_what_bfloat16_is_sure_of_is_not_looked_at_again(monkeypatch):
    task = TASKS["arithmetic"]()
    model = tiny_model(task)
    model.head.bias.data[1] = 50.0  # EOS, whatever was read
    sequences = task.draw(0, 1, 0, 30)
    monkeypatch.setattr(generation_module, "resolve_precision", lambda *arguments: "bfloat16")
    looked = note_looks(monkeypatch)
    generation = generate(model, sequences)
    assert {level for level, _ in looked} == {generation_module.COARSE}
    assert written(generation) == plain_greedy(model, sequences)


@pytest.mark.parametrize("trial_rows", [1, 10**6])
@pytest.mark.parametrize("steps", [0, 40, 150])
@pytest.mark.parametrize("mixer", MIXERS)
def test_looking_in_bfloat16_first_does_not_change_the_outcome(
    models, mixer, steps, trial_rows, monkeypatch
):
    task, model = models("arithmetic", mixer, steps)
    sequences = task.draw(0, 1, 0, 60)
    monkeypatch.setattr(generation_module, "CPU_TOKENS_PER_BATCH", 400)
    expected = generate(model, sequences)
    monkeypatch.setattr(generation_module, "resolve_precision", lambda *arguments: "bfloat16")
    monkeypatch.setattr(generation_module, "COARSE_TRIAL_ROWS", trial_rows)
    looked = note_looks(monkeypatch)
    generation = generate(model, sequences)
    assert written(generation) == written(expected) == plain_greedy(model, sequences)
    coarse = sum(rows for level, rows in looked if level == generation_module.COARSE)
    assert coarse == 60 if trial_rows > 60 else 0 < coarse <= 60


def test_a_bfloat16_tolerance_found_too_small_is_raised(models, monkeypatch):
    """An untrained model's leads are small: some lie below even an eighth of the tolerance."""
    task, model = models("arithmetic", "standard", 0)
    sequences = task.draw(0, 1, 0, 60)
    monkeypatch.setattr(generation_module, "resolve_precision", lambda *arguments: "bfloat16")
    calibrate = generation_module._Engine.calibrate

    def hopeful(self):
        coarse, single = calibrate(self)
        return coarse / 8, single

    monkeypatch.setattr(generation_module._Engine, "calibrate", hopeful)
    runs = []
    run = generation_module._Engine.run
    monkeypatch.setattr(
        generation_module._Engine,
        "run",
        lambda self, tolerances: runs.append(1) or run(self, tolerances),
    )
    assert written(generate(model, sequences)) == plain_greedy(model, sequences)
    assert len(runs) > 1


@pytest.mark.parametrize("level", [generation_module.COARSE, generation_module.SINGLE])
@pytest.mark.parametrize("mixer", MIXERS)
def test_a_raised_tolerance_takes_back_only_what_it_would_have_left_open(
    models, mixer, level, monkeypatch
):
    """What stands is what a run with the larger tolerance from the start decides."""
    task, model = models("arithmetic", mixer, 150)
    sequences = task.draw(0, 1, 0, 120)
    monkeypatch.setattr(generation_module, "resolve_precision", lambda *arguments: "bfloat16")
    monkeypatch.setattr(generation_module, "COARSE_CALIBRATION_ROWS", 16)
    monkeypatch.setattr(generation_module, "GUARD", (1 / 2, 1 / 2))
    monkeypatch.setattr(generation_module, "COARSE_TRIAL_ROWS", 10**6)
    monkeypatch.setattr(generation_module, "CPU_TOKENS_PER_BATCH", 400)
    engine = generation_module._Engine(model, sequences, 0.1, torch.device("cpu"), lambda *a: None)
    coarse, single = engine.calibrate()
    tolerances = [4 * coarse, 16 * single, 0.0]
    engine.run(tolerances)
    decided = engine.least_lead[level][engine.least_lead[level].isfinite()]
    tolerances[level] = float(decided.quantile(0.3))
    engine.reopen(tolerances)
    taken_back = int((engine.stage != generation_module.DONE).sum())
    again = engine.run(tolerances)
    fresh = generation_module._Engine(model, sequences, 0.1, torch.device("cpu"), lambda *a: None)
    assert written(again) == written(fresh.run(tolerances)) == plain_greedy(model, sequences)
    assert taken_back == int((decided < tolerances[level]).sum())
    assert 0 < taken_back < 60
    assert (engine.least_lead[level] >= tolerances[level]).all()


@pytest.mark.parametrize("calls", [1, 5, 20, 40])
@pytest.mark.parametrize("mixer", MIXERS)
def test_an_error_met_at_any_moment_leaves_nothing_half_done(models, mixer, calls, monkeypatch):
    """In the midst of generating a batch, too: its rows go on from where they were."""
    task, model = models("arithmetic", mixer, 40)
    sequences = task.draw(0, 1, 0, 40)
    monkeypatch.setitem(generation_module.LARGEST_BATCH, "cpu", 16)
    monkeypatch.setattr(generation_module._Engine, "calibrate", lambda self: (0.0, 1e-3))
    decide, seen = generation_module._Engine._decide, []

    def failing(engine, rows, logits):
        seen.append(len(rows))
        if len(seen) == calls:
            raise generation_module._ToleranceTooSmall(generation_module.SINGLE, 2e-3)
        return decide(engine, rows, logits)

    monkeypatch.setattr(generation_module._Engine, "_decide", failing)
    generation = generate(model, sequences)
    assert generation.tolerance == 16 * 2e-3
    assert written(generation) == plain_greedy(model, sequences)


@pytest.mark.parametrize("mixer", MIXERS)
def test_what_an_error_too_large_had_decided_is_decided_again(models, mixer, monkeypatch):
    """Steps err by far more than calibration, which sees none, could know.  Tokens that the error
    turned stand until a close call meets it; then they fall, and no sound row is done twice."""
    task, model = models("arithmetic", mixer, 150)
    sequences = task.draw(0, 1, 0, 120)
    monkeypatch.setitem(generation_module.LARGEST_BATCH, "cpu", 8)
    monkeypatch.setattr(generation_module, "MINIMUM_TOLERANCE", 1e-3)
    engine = generation_module._Engine
    step, certify, certified, met = model.step, engine._certify, [], []

    def noisy(tokens, positions, state):
        logits = step(tokens, positions, state)
        sign = 1 - 2 * (torch.arange(logits.shape[1]) % 2)
        return logits + 0.01 * sign

    def noting(engine, rows):
        certified.append(len(rows))
        return certify(engine, rows)

    def noting_too(engine, tolerances):
        met.append(len(certified))
        return reopen(engine, tolerances)

    reopen = engine.reopen
    monkeypatch.setattr(model, "step", noisy)
    monkeypatch.setattr(engine, "_certify", noting)
    monkeypatch.setattr(engine, "reopen", noting_too)
    generation = generate(model, sequences)
    assert written(generation) == plain_greedy(model, sequences)
    again = sum(certified[met[0] :])
    assert sum(certified[: met[0]]) == 120 and 0 < again < 120


def test_memory_is_a_number_or_what_is_free(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda", 0)
    assert memory_for(300, cpu) == memory_for(300, gpu) == 300
    assert memory_for("auto", cpu) == 1024
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60 * 2**30, 80 * 2**30))
    assert memory_for("auto", gpu) == 30 * 1024


@pytest.mark.parametrize("mixer", MIXERS)
def test_batches_that_do_not_fit_are_halved(models, mixer, monkeypatch):
    task, model = models("arithmetic", mixer, 40)
    sequences = task.draw(0, 1, 0, 60)
    expected, too_large = plain_greedy(model, sequences), []

    def small(method):
        def called(self, tokens, *arguments):
            if tokens.shape[0] > 5:
                too_large.append(len(tokens))
                raise torch.OutOfMemoryError("too much")
            return method(self, tokens, *arguments)

        return called

    for name in ("prefill", "step", "hidden"):
        monkeypatch.setattr(Transformer, name, small(getattr(Transformer, name)))
    monkeypatch.setattr(generation_module, "CALIBRATION_ROWS", 4)
    assert written(generate(model, sequences)) == expected
    assert len(too_large) > 1


def test_a_sequence_that_does_not_fit_is_an_error(models, monkeypatch):
    def full(*arguments):
        raise torch.OutOfMemoryError("too much")

    task, model = models("arithmetic", "standard", 40)
    monkeypatch.setattr(generation_module._Engine, "calibrate", lambda self: (0.0, 1e-6))
    monkeypatch.setattr(Transformer, "hidden", full)
    with pytest.raises(torch.OutOfMemoryError):
        generate(model, task.draw(0, 1, 0, 60))


def test_progress_only_grows_and_ends_at_the_number_of_sequences(models):
    task, model = models("arithmetic", "standard", 40)
    seen = []
    generate(model, task.draw(0, 1, 0, 60), 1, progress=lambda done, total: seen.append(done))
    assert seen == sorted(seen)
    assert seen[-1] == 60


@pytest.mark.parametrize("count", [20, 200])
def test_no_batch_is_larger_than_the_memory_allows(models, count, monkeypatch):
    """However many sequences there are; `python -m benchmarks evaluation` measures the bytes."""
    task, model = models("arithmetic", "standard", 40)
    sequences = task.draw(0, 1, 0, count)
    engine = generation_module._Engine(model, sequences, 0.1, torch.device("cpu"), lambda *a: None)
    width = int(sequences.lengths.max())
    bytes_per_token = 4 * (16 * model.dim + 4 * len(task.vocabulary))
    looked = note_looks(monkeypatch)
    generated = []
    prefill = model.prefill
    monkeypatch.setattr(
        model, "prefill", lambda tokens, n: generated.append(len(n)) or prefill(tokens, n)
    )
    engine.run([0.0, 1e-4, 0.0])
    assert max(rows for _, rows in looked) * width * bytes_per_token < 0.12 * 2**20
    assert 2 * max(generated) * model.state_bytes(task.max_len) < 0.1 * 2**20


@pytest.mark.parametrize("first", ["float32", "bfloat16"])
def test_exact_ties_go_to_the_lowest_id(first, monkeypatch):
    """A head without weights makes every logit equal: all arg-maxes are ties."""
    monkeypatch.setattr(generation_module, "resolve_precision", lambda *arguments: first)
    task = TASKS["arithmetic"]()
    model = tiny_model(task)
    torch.nn.init.zeros_(model.head.weight)
    sequences = task.draw(0, 1, 0, 3)
    generation = generate(model, sequences)
    assert written(generation) == plain_greedy(model, sequences)
    assert generation.close_calls > 0


def test_near_ties_are_decided_in_float64():
    """Two tokens whose logits differ by less than float32 can tell: float64 decides."""
    task = TASKS["arithmetic"]()
    model = tiny_model(task)
    with torch.no_grad():
        model.head.weight[7] = model.head.weight[5]
        model.head.bias[[5, 7]] = 100.0
        model.head.weight[7, 0] += 1e-9
    sequences = task.draw(0, 1, 0, 6)
    generation = generate(model, sequences)
    assert written(generation) == plain_greedy(model, sequences)


def test_a_tolerance_found_too_small_is_raised(models, monkeypatch):
    task, model = models("arithmetic", "standard", 40)
    sequences = task.draw(0, 1, 0, 24)
    monkeypatch.setattr(generation_module._Engine, "calibrate", lambda self: (0.0, 0.0))
    monkeypatch.setattr(generation_module, "MINIMUM_TOLERANCE", 1e-7)
    head = model.head.bias.data.clone()
    model.head.bias.data[[5, 7]] = 1e3  # large logits: float32 errors far above the tolerance
    model.head.weight.data[7] = model.head.weight.data[5]
    generation = generate(model, sequences)
    assert generation.tolerance > 1e-7
    assert written(generation) == plain_greedy(model, sequences)
    model.head.bias.data.copy_(head)


def test_nan_weights_are_an_error_not_an_accuracy():
    task = TASKS["arithmetic"]()
    model = tiny_model(task)
    model.head.weight.data[0, 0] = float("nan")
    with pytest.raises(RunError, match="not finite"):
        evaluate(model, task, task.draw(0, 1, 0, 5))


@pytest.mark.parametrize("steps", [0, 40, 150])
def test_accuracies_are_those_of_the_written_tokens(models, steps):
    task, model = models("arithmetic", "standard", steps)
    sequences = task.draw(0, 1, 0, 60)
    result = evaluate(model, task, sequences)
    answers = chains = 0
    for row, tokens in enumerate(plain_greedy(model, sequences)):
        gold = sequences.tokens[row, : sequences.lengths[row]].tolist()
        chains += tokens == gold
        words = task.vocabulary.decode(tokens)
        right = task.vocabulary.decode(gold)[-2]
        answers += words[-1] == "<eos>" and words[-3:-1] == ["=", right]
    assert result.answer_accuracy == answers / 60
    assert result.chain_exact_match == chains / 60
    assert result.answer_accuracy_low <= result.answer_accuracy <= result.answer_accuracy_high
    assert result.n_test == 60


def test_where_chains_break_adds_up(models):
    task, model = models("arithmetic", "standard", 150)
    sequences = task.draw(0, 1, 0, 80)
    generation = generate(model, sequences)
    answer, chain = judge(task, sequences, generation)
    report = evaluate(model, task, sequences).errors
    mistakes = int((~chain).sum())
    assert mistakes > 0
    assert sum(row[1] for row in report["by_position"]) == mistakes
    assert sum(row[1] for row in report["by_step"]) == mistakes
    assert report["by_position"][0][2] == 80
    assert report["by_step"][0][2] == 80
    for (_, missed, reached), (_, _, next_reached) in zip(
        report["by_position"], report["by_position"][1:], strict=False
    ):
        assert next_reached <= reached - missed
    assert report["answer_right_chain_wrong"] == int((answer & ~chain).sum())
    assert report["answer_wrong_chain_right"] == 0


def test_wilson_interval_against_tabulated_values():
    """Values from Newcombe (1998), table I, method 3: 81/263 and 0/20 and 1/29."""
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson_interval(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)


@given(trials=st.integers(1, 10**6), data=st.data())
def test_wilson_interval_holds_the_share(trials, data):
    successes = data.draw(st.integers(0, trials))
    low, high = wilson_interval(successes, trials)
    assert 0 <= low <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= high <= 1
    assert np.isfinite([low, high]).all()


def test_an_evaluation_cut_off_goes_on_part_by_part(tmp_path, monkeypatch):
    """The same result as in one go; what is done is not generated again, unless weights change."""
    task = TASKS["arithmetic"]()
    model, sequences = tiny_model(task), task.draw(0, 0, 0, 20)
    whole = evaluate(model, task, sequences)
    monkeypatch.setattr(evaluation, "PART", 7)
    generated = []
    plain = evaluation.generate

    def counted(model, sequences, *more):
        generated.append(len(sequences))
        return plain(model, sequences, *more)

    monkeypatch.setattr(evaluation, "generate", counted)
    folder = tmp_path / "parts"

    def cut_off(done, total):
        assert total == 20
        if done > 10:
            raise InterruptedError

    def go_on(seen):
        return evaluate(model, task, sequences, 1024, "cpu", seen, folder)

    with pytest.raises(InterruptedError):
        go_on(cut_off)
    assert generated == [7, 7] and [path.name for path in folder.iterdir()] == ["0.npz"]
    result = go_on(lambda done, total: None)
    assert generated == [7, 7, 7, 6] and len(list(folder.iterdir())) == 3
    assert go_on(lambda done, total: None).errors == whole.errors
    assert generated == [7, 7, 7, 6]  # a call whose result was lost costs nothing again
    shutil.rmtree(folder)
    for key in ("answer_accuracy", "chain_exact_match", "n_test", "certified", "errors"):
        assert getattr(result, key) == getattr(whole, key)
    with pytest.raises(InterruptedError):
        go_on(cut_off)
    (folder / "0.npz").write_bytes(b"damaged")
    assert go_on(lambda done, total: None).errors == whole.errors
    shutil.rmtree(folder)
    with pytest.raises(InterruptedError):
        go_on(cut_off)
    generated.clear()
    model.head.weight.data += 1e-3 * torch.randn_like(model.head.weight)
    go_on(lambda done, total: None)
    assert generated == [7, 7, 6]
