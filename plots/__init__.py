"""Figures and tables, each drawn from a results table alone.

`plots.heatmap.draw(pandas.read_csv("results/tuned/results.csv"))` returns a matplotlib figure
to change further; `python -m plots experiment=NAME` writes all figures and tables of an experiment.
"""
