"""Faults on purpose: `make test-faults`, minutes; not part of `make test`."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
COUNTS: list[str] = []


def pytest_collection_modifyitems(config, items):
    chosen = "faults" in (config.option.markexpr or "")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.faults)
            if not chosen:
                item.add_marker(pytest.mark.skip(reason="make test-faults"))


def pytest_terminal_summary(terminalreporter):
    if COUNTS:
        terminalreporter.section("what was done to the sweeps")
        for line in COUNTS:
            terminalreporter.write_line(line)


@pytest.fixture
def count(request):
    """Print a line of figures at the end of the session."""
    return lambda line: COUNTS.append(f"{request.node.name}: {line}")


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The measured columns of a sweep that nothing happened to."""
    from small_sweep import SmallSweep

    sweep = SmallSweep(tmp_path_factory.mktemp("undisturbed"))
    done = sweep.run()
    assert done.returncode == 0, done.stderr
    return sweep.table()
