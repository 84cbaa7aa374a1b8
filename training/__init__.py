"""The training engine: recipe, data, optimiser, loop, checkpoints."""
