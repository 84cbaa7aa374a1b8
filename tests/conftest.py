import os

os.environ.setdefault("WANDB_MODE", "disabled")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest
import torch
from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)  # CI must not fail by chance
if os.environ.get("CI"):
    settings.load_profile("ci")


def pytest_addoption(parser):
    parser.addoption(
        "--config-dir", help="a folder with model/*.yaml or task/*.yaml to test as ours are"
    )


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
