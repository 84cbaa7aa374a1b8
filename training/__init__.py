"""The training engine: recipe, batches, trainer, checkpoints, exact evaluation.

Imports nothing but torch and numpy, so that it also runs on a machine without Hydra.
"""
