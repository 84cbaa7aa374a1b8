import random

from two_samples import deviation


def test_accepts_one_distribution_and_tells_two_apart() -> None:
    rng = random.Random(0)
    scores = [
        deviation([rng.randrange(8) for _ in range(3000)], [rng.randrange(8) for _ in range(3000)])
        for _ in range(100)
    ]
    assert max(scores) < 3.5
    assert abs(sum(scores) / 100) < 0.4
    biased = [min(rng.randrange(9), 7) for _ in range(3000)]
    assert deviation([rng.randrange(8) for _ in range(3000)], biased) > 4
