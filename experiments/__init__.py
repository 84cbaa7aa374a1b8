"""Cells, grids and tables: from a configuration to a row of results, one cell or many."""
