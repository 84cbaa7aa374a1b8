"""A fixed seed for all tests of models; `--config-dir` adds models to test."""

from pathlib import Path

import configured
import pytest
import torch


def pytest_configure(config):
    beside = config.getoption("--config-dir", None)
    if beside is not None:
        configured.FOLDERS.append(Path(beside).resolve())


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
