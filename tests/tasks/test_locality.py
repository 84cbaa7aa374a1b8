"""What each token needs, and how far away that is, on sequences written by hand."""

import pytest

from tasks.arithmetic import Arithmetic
from tasks.copying import Copying
from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.lis import LIS
from tasks.locality import distance
from tasks.mqar import MQAR

NEEDED = [  # task, prompt, needed positions of each token after the prompt
    # 2 * ( 3 + 4 ) = 2 * 7 = 3: positions 0 to 12
    (Arithmetic(2), "2 * ( 3 + 4 ) =", [[0], [1], [2, 3, 4, 5, 6], [], [8, 9, 10]]),
    (Copying(4), "h d d q <sep>", [[0], [1], [2], [3]]),
    (LIS(2), "5 6 <sep>", [[0], [0, 1, 3], [], [3, 4]]),
    # first row 6 7 , second row 9 10 , <sep> answer
    (EditDistance(2), "a b | c d <sep>",
     [[0, 3], [0, 4, 6], [], [1, 3, 6], [1, 4, 9, 7, 6], [], [], [10]]),
    # first block 6 7 , b | c d <sep> is 6 to 13, second block 14 15 , <sep>, answer
    (EditDistanceLocal(2), "a b | c d <sep>",
     [[0, 3], [0, 4, 6], [], [1], [], [3], [4], [], [9, 11, 6], [9, 12, 14, 7, 6], [], [], [15]]),
    (MQAR(2), "1 65 2 66 | 2 1 <sep>", [[5], [2, 3, 8], [6], [0, 1, 10], [], [11]]),
    (MQAR(2, "direct"), "1 65 2 66 | 2 1 <sep>", [[0, 1, 6]]),
    (MQAR(2, "tagged"), "1 65 2 66 | 2 1 <sep>", [[]] * 5 + [[2, 3, 5], [0, 1, 6]]),
]  # fmt: skip


@pytest.mark.parametrize(("task", "prompt", "needed"), NEEDED, ids=lambda x: getattr(x, "name", ""))
def test_dependencies_by_hand(task, prompt, needed) -> None:
    assert task.dependencies(task.complete(prompt.split())) == needed


def test_distance_of_a_sequence() -> None:
    # r x | c r o <sep> 3 1 3 , 4 3 4 , <sep> 4: the last entry needs x, 12 tokens back.
    example = EditDistance(3).complete("r x | c r o <sep>".split())
    assert distance(EditDistance(3), example) == 12
