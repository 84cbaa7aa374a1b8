"""Exact evaluation of a model by greedy decoding, or by the labels that it gives."""
