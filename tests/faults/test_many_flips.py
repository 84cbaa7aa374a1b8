"""Five hundred flipped bits, over every file of runs/ and results/."""

import os
import random

from flips import Flips

FLIPS = int(os.environ.get("FAULT_FLIPS", "500"))
SEED = int(os.environ.get("FAULT_SEED", random.SystemRandom().randrange(10**6)))


def test_no_flipped_bit_changes_a_number_silently(tmp_path, monkeypatch, count):
    print(f"seed {SEED}: FAULT_SEED={SEED} repeats it")
    monkeypatch.chdir(tmp_path)
    flips = Flips(random.Random(SEED))
    files = flips.files()
    for number in range(FLIPS):
        flips.flip(files[number % len(files)])
    told = ", ".join(f"{n} times {what}" for what, n in sorted(flips.outcomes.items()))
    count(f"{FLIPS} flips in {len(files)} files, three readings each: {told}; seed {SEED}")
