"""Experiments: from a grid of cells to a table of results."""
