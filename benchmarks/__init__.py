"""Speed, measured and printed as ratios taken in one run; never a timed test."""
