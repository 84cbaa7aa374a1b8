from collections import Counter

from tasks.arithmetic import Arithmetic
from tasks.generate import draw_set
from tasks.task import Example


def test_hand_worked_chain() -> None:
    task, prompt = Arithmetic(4), "3 / 4 / ( 10 - 1 * 2 ) =".split()
    sequence = task.complete(prompt)
    chain = "9 / ( 10 - 1 * 2 ) = 9 / ( 10 - 2 ) = 9 / 8 ="
    assert (" ".join(sequence.chain), sequence.answer) == (chain, ["8"])  # 8 * 8 = 64 = 9 mod 11
    assert Arithmetic(4, "direct").complete(prompt) == Example(prompt, [], ["8"])


def test_training_mixes_operators_in_proportion_and_fills_up_with_the_largest() -> None:
    """Of 1,000, 2,000 and 3,000; but only 473 one-operator expressions exist: 121 sums, differences
    and products, 110 quotients."""
    task = Arithmetic(3)
    drawn = draw_set(task, "train", 6000)
    operators = Counter(
        sum(token in "+-*/" for token in task.decode(drawn, row).prompt) for row in range(6000)
    )
    assert operators == {1: 473, 2: 2000, 3: 3527}
