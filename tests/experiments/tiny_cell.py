"""LIS of four numbers, trained for about a second; few answers are correct."""

TINY = [
    "task=lis", "task.size=4", "task.number_range=20", "model.dim=16", "model.num_layers=1",
    "recipe.steps=60", "recipe.validate_every=20", "recipe.warmup_steps=10",
    "data.train=400", "data.validation=50", "data.test=60", "logger=none", "progress=false",
]  # fmt: skip
