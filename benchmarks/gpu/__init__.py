"""What a GPU is asked in pieces of a few minutes; every script imports without Hydra."""
