"""One thread for every test: two one-thread processes beat one two-thread process."""

import os

import torch
from hypothesis import settings

torch.set_num_threads(1)
os.environ.setdefault("WANDB_MODE", "offline")

# CI must not fail by chance; at the desk hypothesis goes on looking for new cases.
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")
