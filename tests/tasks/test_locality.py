"""What each token needs, and how far away that is, on sequences written by hand."""

import pandas as pd
import pytest

from plots.locality import distances, locality
from tasks.arithmetic import Arithmetic
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.lis import LIS
from tasks.mqar import MQAR

NEEDED = [  # task, prompt, needed positions of each token after the prompt
    # 2 * ( 3 + 4 ) = 2 * 7 = 3: positions 0 to 12
    (Arithmetic(2), "2 * ( 3 + 4 ) =", [[0], [1], [2, 3, 4, 5, 6], [], [8, 9, 10]]),
    (LIS(2), "5 6 <sep>", [[0], [0, 1, 3], [], [3, 4]]),
    # first row 6 7 , second row 9 10 , <sep> answer
    (EditDistance(2), "a b | c d <sep>",
     [[0, 3], [0, 4, 6], [], [1, 3, 6], [1, 4, 9, 7, 6], [], [], [10]]),
    # first block 6 7 , b | c d <sep> is 6 to 13, second block 14 15 , <sep>, answer
    (EditDistanceLocal(2), "a b | c d <sep>",
     [[0, 3], [0, 4, 6], [], [1], [], [3], [4], [], [9, 11, 6], [9, 12, 14, 7, 6], [], [], [15]]),
    (MQAR(2), "1 65 2 66 | 2 1 <sep>", [list(range(k)) for k in range(8, 14)]),  # the default
]  # fmt: skip


@pytest.mark.parametrize(("task", "prompt", "needed"), NEEDED, ids=lambda x: getattr(x, "name", ""))
def test_dependencies_by_hand(task, prompt, needed) -> None:
    assert task.dependencies(task.complete(prompt.split())) == needed


def test_locality_is_the_largest_distance() -> None:
    # r x | c r o <sep> 3 1 3 , 4 3 4 , <sep> 4: the last entry needs x, 12 tokens back.
    class OnePrompt(EditDistance):
        def draw_batch(self, seed, stream, first, count, size):
            return self.encode([self.complete("r x | c r o <sep>".split())] * count)

    assert locality(OnePrompt(3)) == 12


def test_distances_are_those_of_the_cells_settings() -> None:
    task = {"_target_": "tasks.ed.EditDistance", "size": 5, "format": "cot", "alphabet_size": 3}
    config = {"task": task, "measure": {"task": {"size": 2}}}
    table = pd.DataFrame({"task": ["ed"], "size": [2], "max_len": [20], "cell": ["a"]})
    (row,) = distances(table, {"a": {"config": config}}).to_dict("records")
    assert row == {"task": "ED", "n": 2, "L": 20, "m": locality(EditDistance(2, alphabet_size=3))}
