import json
from pathlib import Path

import pytest

from benchmarks import data
from tasks.ed import EditDistance
from tasks.lis import LIS


def test_record_holds_what_the_table_prints(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(data, "SECONDS_PER_TURN", 0.01)
    monkeypatch.setattr(
        data, "COT_BENCHMARK", [(LIS(8), 100), (EditDistance(4), 400), (LIS(9), None)]
    )
    path = tmp_path / "new" / "data.json"
    data.main(["--turns", "3", "--record", str(path)])
    record = json.loads(path.read_text())
    one, two, three = record["rows"]
    assert [len(row["kernel_turns"]) for row in record["rows"]] == [3, 3, 3]
    assert three["cot_benchmark"] is None
    mean = (one["kernel"] / 100 * two["kernel"] / 400) ** 0.5
    assert record["geometric_means"]["kernel_over_cot_benchmark"] == pytest.approx(mean)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:2] == ["lis-8", f"{one['plain']:,.0f}"]
    assert lines[4].split()[-2] == f"{mean:,.0f}"
