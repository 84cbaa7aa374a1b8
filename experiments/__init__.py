"""Configuration, the identity of a cell, the store of results, sweeps."""
