"""Chi-square test of whether two samples have the same distribution."""

from collections import Counter
from collections.abc import Hashable, Iterable

from scipy.stats import chi2_contingency, norm


def deviation(one: Iterable[Hashable], two: Iterable[Hashable], least: int = 20) -> float:
    """The p-value of the two-sample chi-square test as a z-score; values that occur fewer than
    `least` times in total are pooled."""
    a, b = Counter(one), Counter(two)
    cells = [(a[value], b[value]) for value in a | b if a[value] + b[value] >= least]
    rest = a.total() - sum(x for x, _ in cells), b.total() - sum(y for _, y in cells)
    cells += [rest] if sum(rest) >= least else []
    return float(norm.isf(chi2_contingency(cells, correction=False).pvalue))
