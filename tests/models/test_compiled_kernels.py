"""The process that compiles the kernels rounds as those that load them from the cache do, since
nothing is called: else the first training on a machine would give other weights than the next."""

import pytest
from numba.core.dispatcher import Dispatcher

from models import cpu_attention, cpu_recurrence, kernels, transformer


@pytest.mark.parametrize("module", [cpu_attention, cpu_recurrence, kernels, transformer])
def test_whatever_a_kernel_calls_becomes_a_part_of_it(module):
    found = [x for x in vars(module).values() if isinstance(x, Dispatcher)]
    assert found
    for dispatcher in found:
        scope = dispatcher.py_func.__globals__
        for name in dispatcher.py_func.__code__.co_names:
            called = scope.get(name)
            if isinstance(called, Dispatcher):
                assert called.targetoptions.get("inline") == "always", (dispatcher, name)
