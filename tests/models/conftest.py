"""One thread and a fixed seed for every test of the models; models of ``--config-dir``, too."""

from pathlib import Path

import configured
import pytest
import torch


def pytest_configure(config):
    beside = config.getoption("--config-dir", None)
    if beside is not None:
        configured.FOLDERS.append(Path(beside).resolve())


@pytest.fixture(autouse=True)
def one_thread_and_seed():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
