"""One thread for every test: two one-thread processes beat one two-thread process."""

import contextlib
import os

import pytest
import torch
from hypothesis import settings

from common import UserError
from config.compose import configurations_of

torch.set_num_threads(1)
os.environ.setdefault("WANDB_MODE", "offline")

# CI must not fail by chance; at the desk hypothesis goes on looking for new cases.
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")


def pytest_addoption(parser):
    parser.addoption("--config-dir", help="folder of further configurations, such as my model/")


def pytest_configure(config):
    beside = contextlib.ExitStack()
    try:
        beside.enter_context(configurations_of(config.getoption("--config-dir")))
    except UserError as error:
        raise pytest.UsageError(str(error)) from None
    config.add_cleanup(beside.close)
