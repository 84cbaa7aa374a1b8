"""Transformers with exchangeable token mixers, one file per mixer, and what each costs."""
