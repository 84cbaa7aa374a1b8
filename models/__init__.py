"""Transformers whose token mixer is exchangeable: one mixer a file, and what each of them costs."""
