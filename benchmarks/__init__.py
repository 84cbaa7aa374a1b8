"""Speed as ratios within one run; tests never assert it."""
