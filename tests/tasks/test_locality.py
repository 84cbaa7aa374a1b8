"""Distances to needed tokens, on sequences written by hand."""

from tasks.ed import EditDistance
from tasks.ed_local import EditDistanceLocal
from tasks.locality import distances, locality


def test_distances_of_a_sequence() -> None:
    # r x | c r o <sep> 3 1 3 , 4 3 4 , <sep> 4: the last entry needs x, 12 tokens back, and the
    # entry above and left of it, 5 tokens back.
    example = EditDistance(3).complete("r x | c r o <sep>".split())
    assert distances(EditDistance(3), example) == (12, 5)


def test_the_local_chain_is_more_local() -> None:
    tasks = EditDistance(12), EditDistanceLocal(12)
    (whole, _), (local, _) = map(locality, tasks)
    assert local < whole / 2
    assert local < 0.2 * tasks[1].max_len and whole > 0.8 * tasks[0].max_len
