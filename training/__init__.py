"""The training engine: recipe, batches, loop, validation, checkpoints, several processes."""
