"""What positions of sparse attention see of edit distance's letter pairs, by brute force."""

import numpy as np
import pytest
import torch

from models.sparse import SparseAttention
from tasks.arithmetic import Arithmetic
from tasks.ed import EditDistance, strings
from tasks.ed_local import EditDistanceLocal
from tasks.lis import LIS
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


def test_locality_trends() -> None:
    """LIS and ED are not local by Definition 5.3; by chain states LIS is half, ED 1 / sqrt(L)."""
    lis = [measure(LIS(n)) for n in (40, 110, 250)]
    ed = [measure(EditDistance(n)) for n in (6, 12, 20)]
    local = [measure(EditDistanceLocal(n)) for n in (6, 12, 20)]
    assert all(found.relative > 0.95 for found in lis)
    assert all(found.relative > 0.85 for found in ed)
    assert all(abs(found.chain_relative - 0.5) < 0.01 for found in lis)
    roots = [found.chain_relative * found.max_len**0.5 for found in ed]
    assert max(roots) / min(roots) < 1.2
    times_n = [found.relative * n for found, n in zip(local, (6, 12, 20), strict=True)]
    assert max(times_n) / min(times_n) < 1.2
    arithmetic = [measure(Arithmetic(n)).relative * n for n in (6, 10, 16)]
    assert max(arithmetic) / min(arithmetic) < 1.2
