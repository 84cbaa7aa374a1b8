"""`python -m benchmarks sweep` on the least grid."""

import json

from benchmarks import sweep


def test_a_sweep_of_made_up_cells_is_measured_and_finished(tmp_path, capsys):
    path = tmp_path / "sweep.json"
    sweep.main(["cells=100", f"record={path}"])
    record = json.loads(path.read_text())
    assert record["measured"]["cells"] == 100
    assert all(value > 0 for value in record["measured"].values())
    assert "bookkeeping, seconds per cell" in capsys.readouterr().out
