"""Exact evaluation of a model by free greedy generation, or by the labels that it gives."""
