"""A sample of what tests/faults/test_many_flips.py does five hundred times."""

import random

from flips import Flips


def test_no_flipped_bit_changes_a_number_silently(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flips = Flips(random.Random(0))
    files = flips.files()
    assert {path.suffix for path in files} >= {".pt", ".json", ".yaml", ".csv"}
    for path in files:
        flips.flip(path)
    assert flips.outcomes["refused in a line"] > 10
