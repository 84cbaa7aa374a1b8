import os

os.environ.setdefault("WANDB_MODE", "disabled")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest
import torch


def pytest_addoption(parser):
    parser.addoption(
        "--config-dir", help="a folder with model/*.yaml or task/*.yaml to test as ours are"
    )


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
