"""The stacked side of the seeds benchmark trains as separate models do; times are not tested."""

import numpy as np
import pytest

from benchmarks.seeds import Seeds


@pytest.mark.parametrize("mixer", ["standard", "linear"])
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_stacked_seeds_have_the_losses_of_separate_ones(mixer):
    """Not their weights: softmax's key bias has gradient 0, and AdamW steps by its rounding."""
    apart, stacked = Seeds(mixer, 16, 2), Seeds(mixer, 16, 2)
    for step in range(4):
        np.testing.assert_allclose(apart.step_apart(step), stacked.step_stacked(step), rtol=1e-5)
