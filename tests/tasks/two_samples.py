"""A chi-square test of whether two samples come from one distribution."""

from collections import Counter
from collections.abc import Hashable, Iterable


def deviation(one: Iterable[Hashable], two: Iterable[Hashable], least: int = 20) -> float:
    """Return the standard score of the two-sample chi-square statistic (Wilson and Hilferty).

    Values seen fewer than ``least`` times in all are taken together.
    """
    a, b = Counter(one), Counter(two)
    common = [value for value in a | b if a[value] + b[value] >= least]
    cells = [(a[value], b[value]) for value in common]
    rest = (a.total() - sum(x for x, _ in cells), b.total() - sum(y for _, y in cells))
    if sum(rest) >= least:
        cells.append(rest)
    freedom = len(cells) - 1
    if freedom == 0:
        return 0.0
    ratio = (b.total() / a.total()) ** 0.5
    statistic = sum((x * ratio - y / ratio) ** 2 / (x + y) for x, y in cells)
    variance = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - variance)) / variance**0.5
