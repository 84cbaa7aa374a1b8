import random
from functools import cache
from pathlib import Path

import numpy as np
import plain_samplers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_samplers import edit, sample, sample_prompt
from two_samples import deviation

from common import UserError
from tasks import ed_kernels
from tasks.ed import EditDistance, distances, strings
from tasks.ed_local import EditDistanceLocal
from tasks.random_numbers import below, start
from tasks.task import Example

SAMPLES = Path(__file__).resolve().parents[1] / "oracles" / "samples"
BOTH = pytest.mark.parametrize("cls", [EditDistance, EditDistanceLocal])
WORDS = st.lists(st.sampled_from("abc"), min_size=1, max_size=6)


@given(
    st.sampled_from([EditDistance, EditDistanceLocal]),
    st.integers(1, 14),
    st.integers(0, 2**62),
    st.integers(3, 26),
    st.sampled_from(["cot", "direct"]),
)
@settings(max_examples=150, deadline=None)
def test_kernel_writes_what_the_solver_writes(cls, size, seed, alphabet, format) -> None:
    task = cls(size, format, alphabet_size=alphabet)
    drawn = task.decode(task.draw(seed, 2, seed % 1000, 1), 0)
    assert drawn == task.complete(drawn.prompt)
    assert task.check(drawn.tokens) is None


@given(WORDS, WORDS)
def test_table_against_the_recursive_definition(one: list[str], two: list[str]) -> None:
    @cache
    def distance(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j  # the border counts 1 a letter
        replaced = distance(i - 1, j - 1) + (0 if one[i - 1] == two[j - 1] else 3)
        return min(replaced, distance(i - 1, j) + 2, distance(i, j - 1) + 2)

    expected = [[distance(i + 1, j + 1) for j in range(len(two))] for i in range(len(one))]
    assert distances(one, two) == expected


def test_hand_worked_tables() -> None:
    chain, answer = EditDistance(3).solve("r x | c r o <sep>".split())
    assert (" ".join(chain), answer) == ("3 1 3 , 4 3 4 , <sep>", ["4"])
    assert "chain   3 1 3 , 4 3 4 , <sep>" in (EditDistance.__doc__ or "")
    local, answer = EditDistanceLocal(3).solve("r x | c r o <sep>".split())
    assert (" ".join(local), answer) == ("3 1 3 , x | c r o <sep> 4 3 4 , <sep>", ["4"])
    assert "chain   3 1 3 , x | c r o <sep> 4 3 4 , <sep>" in (EditDistanceLocal.__doc__ or "")


@pytest.mark.parametrize("size", [6, 20])
def test_accepts_the_sequences_of_cot_benchmark(size: int) -> None:
    lines = (SAMPLES / f"ed-{size}.txt").read_text().splitlines()
    assert len(lines) >= 10
    assert [EditDistance(size).check(line.split()) for line in lines] == [None] * len(lines)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("r x | c r o <sep> 3 1 3 , 4 3 5 , <sep> 4", "chain token 7 is '5', not '4'"),
        ("r x | c r o <sep> 3 1 3 , 4 3 4 , <sep> 5", "the answer is 4, not 5"),
        ("r x | c r o <sep> 3 1 3 4 3 4 , <sep> 4", "chain token 4"),
        ("r x | c r o <sep> 4", "chain token 1 is missing"),
        ("r x | c r o <sep> 3 1 3 , 4 3 4 , <sep>", "no answer"),
        ("c r o | r x <sep> 4", "before the shorter"),
        ("r x c r o <sep> 4", "0 '|'"),
        ("r x | c r <sep> 4", "one must have 3"),
        ("r x s | c r s o x y <sep> 4", "one must have 3"),
        ("r x s | r x s <sep> 4", "equal"),
        ("r 3 s | r x s <sep> 4", "'3' where a letter"),
        ("r ß s | r x s <sep> 4", "'ß'"),
    ],
)
def test_rejects_with_a_reason(line: str, reason: str) -> None:
    said = EditDistance(3).check(line.split())
    assert said is not None
    assert reason in said


def test_local_chain_must_restate_the_letters() -> None:
    right = "r x | c r o <sep> 3 1 3 , x | c r o <sep> 4 3 4 , <sep> 4"
    task = EditDistanceLocal(3)
    assert task.check(right.split()) is None
    assert "chain token 5" in (
        task.check(right.replace("x | c r o <sep> 4", "r | c r o <sep> 4").split()) or ""
    )
    assert task.check("r x | c r o <sep> 3 1 3 , 4 3 4 , <sep> 4".split()) is not None


@pytest.mark.parametrize("size", [1, 2, 3, 6, 20])
def test_longest_sequence_is_reached_and_never_exceeded(size: int) -> None:
    task, local = EditDistance(size), EditDistanceLocal(size)
    assert task.max_len == size**2 + 5 * size + 6
    assert local.max_len == task.max_len + (size - 1) * (size + 4) + size * (size - 1) // 2
    for each in (task, local, EditDistance(size, "direct")):
        assert each.draw(0, 0, 0, 5000).lengths.max() - 1 == each.max_len


@pytest.mark.parametrize("size", [1, 2, 6, 20])
def test_largest_entry_has_a_token_and_none_is_larger(size: int) -> None:
    task = EditDistance(size)
    table = distances(["a"] * size, ["b"] * (size + 2))
    assert max(map(max, table)) == task.largest_distance
    assert str(task.largest_distance) == task.own_tokens[-1]


def features(sequence: Example) -> dict[str, object]:
    one, two = strings(sequence.prompt)
    return {
        "lengths": (len(one), len(two)),
        "answer": sequence.answer[0],
        "letters used": len(set(one + two)),
        "first letter": one[0],
        "last letter": two[-1],
        "same place": sum(a == b for a, b in zip(one, two, strict=False)),
        "same letters": len(set(one) & set(two)),
    }


@pytest.mark.parametrize("size", [1, 2, 7, 20])
@BOTH
def test_kernel_draws_the_plain_sampler_s_distribution(cls, size: int) -> None:
    task = cls(size, "direct")
    rng = random.Random(1)
    drawn = task.draw(3, 0, 0, 6000)
    plain = [features(sample(task, rng)) for _ in range(6000)]
    kernel = [features(task.decode(drawn, row)) for row in range(6000)]
    for name in plain[0]:
        score = deviation([f[name] for f in plain], [f[name] for f in kernel])
        assert score < 3.5, (name, score)


SAMPLES_OF_EDITS = 20_000
MEAN_EDITS = 10.03  # of the copies among CoT_benchmark's pairs at n = 20; 9.49 if drawn again too


def assert_mean_edits(edits: list[int]) -> None:
    """Four standard errors either way: 0.21, where redrawing the number would be 0.54 off."""
    error = 5.77 / len(edits) ** 0.5  # the standard deviation of 1..20 is 5.77
    assert 4 * error < 0.3
    assert abs(sum(edits) / len(edits) - MEAN_EDITS) < 4 * error


def test_plain_sampler_keeps_the_number_of_edits_when_it_draws_again(monkeypatch) -> None:
    calls: list[tuple[list[str], int]] = []

    def recorded(rng, word, letters, edits):
        calls.append((edit(rng, word, letters, edits), edits))
        return calls[-1][0]

    monkeypatch.setattr(plain_samplers, "edit", recorded)
    task, rng, edits = EditDistance(20, "direct"), random.Random(0), []
    for _ in range(SAMPLES_OF_EDITS):
        calls.clear()
        pair = strings(sample_prompt(task, rng, 20))
        assert len({number for _, number in calls}) <= 1
        if calls and calls[-1][0] in pair:  # the last one was admitted
            edits.append(calls[-1][1])
    assert_mean_edits(edits)


def test_kernel_keeps_the_number_of_edits_when_it_draws_again(monkeypatch) -> None:
    """Its Python source is run, so that what it calls can be watched."""
    last: dict[str, int] = {}
    draw_second = ed_kernels.draw_second

    def recorded(state, size, edits, *rest):
        independent = below(state.copy(), 5) < 2  # as the kernel is about to find
        last.update(edits=0 if independent else edits)
        numbers.add(edits)
        return draw_second(state, size, edits, *rest)

    monkeypatch.setattr(ed_kernels, "draw_second", recorded)
    state, edits = np.empty(1, np.uint64), []
    scratch = [np.empty(n, np.int64) for n in (26, 43, 43)]
    for index in range(SAMPLES_OF_EDITS):
        numbers: set[int] = set()
        start(state, 0, 0, 20, index)
        ed_kernels.draw_strings.py_func(state, 20, 26, *scratch)
        assert len(numbers) == 1
        edits += [last["edits"]] if last["edits"] else []
    assert_mean_edits(edits)


@BOTH
@pytest.mark.parametrize("size", [1, 2, 3, 300])
def test_every_number_of_edits_comes_to_an_end(cls, size: int) -> None:
    """Also where an edited copy is hardly ever admissible: the next pair may be independent."""
    task, rng = cls(size, "direct", alphabet_size=3), random.Random(0)
    assert len(task.draw(0, 0, 0, 500)) == 500
    for _ in range(200):
        assert task.check_prompt(sample_prompt(task, rng, size)) is None


def test_edits_delete_replace_and_insert_in_equal_shares() -> None:
    rng = random.Random(0)
    lengths = [len(edit(rng, list("abcdef"), list("abc"), 1)) for _ in range(6000)]
    assert deviation(lengths, [5, 6, 7] * 2000) < 3.5
    shortest = [len(edit(rng, list("ab"), list("abc"), 1)) for _ in range(6000)]
    assert deviation(shortest, [3, 2, 3] * 2000) < 3.5  # two letters are never shortened


def test_local_has_the_same_prompts_and_answers() -> None:
    task, local = EditDistance(6), EditDistanceLocal(6)
    one, two = task.draw(0, 0, 0, 100), local.draw(0, 0, 0, 100)
    for row in range(100):
        a, b = task.decode(one, row), local.decode(two, row)
        assert (a.prompt, a.answer) == (b.prompt, b.answer)


def test_dependencies_of_a_short_chain() -> None:
    task = EditDistance(2)
    sequence = task.complete("a b | c d <sep>".split())
    # a b | c d <sep> 0..5, first row 6 7 , second row 9 10 , <sep> answer
    assert task.dependencies(sequence) == [
        [0, 3], [0, 4, 6], [], [1, 3, 6], [1, 4, 9, 7, 6], [], [], [10],
    ]  # fmt: skip
    assert task.chain_steps(sequence) == [0, 0, 0, 1, 1, 1, 2, 2]


def test_dependencies_of_a_short_local_chain() -> None:
    task = EditDistanceLocal(2)
    sequence = task.complete("a b | c d <sep>".split())
    # first block 6 7 , b | c d <sep> is 6..13, second block 14 15 , <sep>, answer
    assert task.dependencies(sequence) == [
        [0, 3], [0, 4, 6], [], [1], [], [3], [4], [],
        [9, 11, 6], [9, 12, 14, 7, 6], [], [], [15],
    ]  # fmt: skip
    assert task.chain_steps(sequence) == [0] * 8 + [1] * 4 + [2]


def test_bad_alphabet() -> None:
    with pytest.raises(UserError, match="alphabet_size=2 must be at least 3"):
        EditDistance(6, alphabet_size=2)
    with pytest.raises(UserError, match="alphabet_size=27 must be at most 26"):
        EditDistance(6, alphabet_size=27)
