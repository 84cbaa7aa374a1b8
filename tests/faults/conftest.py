"""Fault injection: run by `make test-faults` (minutes), not by `make test`."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config, items):
    chosen = "faults" in (config.option.markexpr or "")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.faults)
            if not chosen:
                item.add_marker(pytest.mark.skip(reason="make test-faults"))


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The measured columns of a sweep without faults."""
    from small_sweep import SmallSweep

    sweep = SmallSweep(tmp_path_factory.mktemp("undisturbed"))
    done = sweep.run()
    assert done.returncode == 0, done.stderr
    return sweep.table()
