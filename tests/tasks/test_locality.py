"""What positions of sparse attention see of edit distance's letter pairs, by brute force."""

import numpy as np
import pytest
import torch

from models.sparse import SparseAttention
from tasks.ed import EditDistance, strings
from tasks.ed_local import EditDistanceLocal
from tasks.locality import attended, measure, seen_pairs
from tasks.task import Example

BOTH = pytest.mark.parametrize("cls", [EditDistance, EditDistanceLocal])


def attended_by_definition(i: int, block: int, k: int) -> set[int]:
    """Positions from 1: the window, and the last of every block."""
    window = {j for j in range(1, i + 1) if i - k * block < j}
    return window | {j for j in range(1, i + 1) if j % block == 0}


@pytest.mark.parametrize("window_blocks", [1, 2, 3])
@pytest.mark.parametrize(("length", "block_size"), [(1, 1), (30, 4), (72, 8), (210, 8)])
def test_attended_is_what_the_model_attends_to(length, block_size, window_blocks) -> None:
    mixer = SparseAttention(
        8, 2, length, block_size=block_size, window_blocks=window_blocks, implementation="dense"
    )
    every = torch.arange(length)
    model = mixer.sees.visible(every[:, None], every).numpy()
    ours = attended(length, block_size, window_blocks)
    assert np.array_equal(ours, model)
    for i in range(length):
        assert {j + 1 for j in np.flatnonzero(ours[i])} == attended_by_definition(
            i + 1, block_size, window_blocks
        )


@pytest.mark.parametrize(
    ("size", "block_size", "one_block", "two_blocks"),
    [(6, 8, 0.58, 1.0), (12, 8, 0.22, 0.70), (16, 16, 0.42, 1.0), (20, 16, 0.29, 0.89)],
)
def test_shares_at_the_sizes_of_the_paper(size, block_size, one_block, two_blocks) -> None:
    """Two strings of n letters; sets of positions instead of matrices of booleans."""
    task = EditDistance(size)
    example = task.complete(["a"] * size + ["|"] + ["b"] * size + ["<sep>"])
    for k, expected in ((1, one_block), (2, two_blocks)):
        sees = [attended_by_definition(i + 1, block_size, k) for i in range(len(example.tokens))]
        pairs = [(i, size + 1 + j) for i in range(1, size + 1) for j in range(1, size + 1)]
        found = sum(any({a, b} <= seen for seen in sees) for a, b in pairs) / size**2
        assert seen_pairs(task, [example], k) == pytest.approx(found)
        assert found == pytest.approx(expected, abs=0.005)


@BOTH
@pytest.mark.parametrize("size", [3, 6, 9])
def test_shares_of_sampled_sequences(cls, size: int) -> None:
    task = cls(size)
    block = 2 ** int(np.log2(task.max_len**0.5))
    for seed in range(4):
        example = task.decode(task.draw(seed, 0, 0, 1), 0)
        one, two = strings(example.prompt)
        seen = 0
        for i, j, cell, first, second in by_text(example, len(one), len(two)):
            assert example.tokens[cell] == task.solve(example.prompt)[0][0] or (i, j) != (0, 0)
            for position in range(cell):  # before the entry
                visible = {k - 1 for k in attended_by_definition(position + 1, block, 1)}
                if visible & set(first) and visible & set(second):
                    seen += 1
                    break
        assert seen_pairs(task, [example], 1) == pytest.approx(seen / len(one) / len(two))


def by_text(example: Example, one: int, two: int):
    """Entry by entry: where it stands, and all copies of its letters, by reading the tokens."""
    copies: dict[tuple[str, int], list[int]] = {}
    cells: list[int] = []
    strings_of_block: list[int] = []
    used = 0
    for position, token in enumerate(example.tokens):
        if token.isalpha():
            strings_of_block.append(position)
        elif token == "<sep>":
            for n, place in enumerate(strings_of_block):
                left = one - used
                key = ("first", used + n) if n < left else ("second", n - left)
                copies.setdefault(key, []).append(place)
            strings_of_block = []
        elif token == ",":
            used += 1
        elif token.isdigit():
            cells.append(position)
    for n in range(one * two):
        i, j = divmod(n, two)
        yield i, j, cells[n], copies["first", i], copies["second", j]


@BOTH
def test_positions_name_the_letters_and_the_entries(cls) -> None:
    task = cls(5)
    for seed in range(20):
        example = task.decode(task.draw(seed, 0, 0, 1), 0)
        one, two = strings(example.prompt)
        cells = task.cell_positions(example)
        first, second = task.letter_positions(example)
        for i, j, cell, copies_one, copies_two in by_text(example, len(one), len(two)):
            assert cells[i, j] == cell
            assert (first[i], second[j]) == (copies_one, copies_two)
    direct = cls(5, "direct")
    example = direct.decode(direct.draw(0, 0, 0, 1), 0)
    assert set(direct.cell_positions(example).ravel()) == {len(example.prompt)}


def test_measure_gives_both_windows_and_nothing_for_other_tasks() -> None:
    found = measure(EditDistance(12), count=50).seen_pairs
    assert found is not None
    assert found == pytest.approx((0.22, 0.70), abs=0.05)
    local = measure(EditDistanceLocal(12), count=10).seen_pairs
    assert local is not None
    assert local[0] > found[0]
