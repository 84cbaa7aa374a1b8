"""Cells and sweeps: running one, planning and launching many, watching them."""
