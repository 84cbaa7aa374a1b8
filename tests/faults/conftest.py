"""Fault injection: run by `make test-faults` (minutes), not by `make test`."""

import pytest


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The measured columns of a sweep without faults."""
    from small_sweep import SmallSweep

    sweep = SmallSweep(tmp_path_factory.mktemp("undisturbed"))
    done = sweep.run()
    assert done.returncode == 0, done.stderr
    return sweep.table()
