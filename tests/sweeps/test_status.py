"""What a person reads of a sweep while it runs."""

import types

import pytest

from sweeps import status
from sweeps.tables import duration


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "0.4 s"), (22.3, "22 s"), (99, "99 s"), (101, "1.7 min"), (5400, "90 min"),
     (9000, "2.5 h"), (900_000, "250 h")],
)  # fmt: skip
def test_a_duration_reads_as_a_person_says_it(seconds, told):
    assert duration(seconds) == told


def test_ctrl_c_ends_watching_without_an_error(monkeypatch, capsys):
    running = types.SimpleNamespace(status="running", reason="")
    sweep = types.SimpleNamespace(plan=lambda: [running])
    looks = []

    def interrupted(_seconds):
        looks.append(1)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(status.time, "sleep", interrupted)
    monkeypatch.setattr(status, "estimate_of", lambda _: None)
    monkeypatch.setattr(status, "_status", lambda *_: "one cell runs")
    status.watch(sweep)
    assert len(looks) == 3 and "one cell runs" in capsys.readouterr().out
