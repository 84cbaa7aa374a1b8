import os

os.environ.setdefault("WANDB_MODE", "disabled")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest
import torch
from hypothesis import settings

# Kernels compile at their first call, so no deadline; CI always runs the same examples.
settings.register_profile("ours", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("ours")


def pytest_addoption(parser):
    parser.addoption(
        "--config-dir", help="a folder with model/*.yaml or task/*.yaml to test as ours are"
    )


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
