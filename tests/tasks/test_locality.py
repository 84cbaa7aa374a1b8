"""Distances to needed tokens, on sequences written by hand."""

from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.locality import distances, measure


def test_distances_of_a_sequence() -> None:
    # r x | c r o <sep> 3 1 3 , 4 3 4 , <sep> 4: the last entry needs x, 12 tokens back, and the
    # entry above and left of it, 5 tokens back.
    example = EditDistance(3).complete("r x | c r o <sep>".split())
    assert distances(EditDistance(3), example) == (12, 5)


def test_the_local_chain_is_more_local() -> None:
    whole, local = measure(EditDistance(12)), measure(EditDistanceLocal(12))
    assert local.distance < whole.distance / 2
    assert local.relative < 0.2 < 0.8 < whole.relative
