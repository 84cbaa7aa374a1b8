"""One thread for every test: two one-thread processes beat one two-thread process."""

import os

import torch

torch.set_num_threads(1)
os.environ.setdefault("WANDB_MODE", "offline")
