"""The tables under results/ are what the code makes of their results.csv today.

A report shows the figures that lie beside it.
"""

import base64
import re
from pathlib import Path

import pytest

from config.identity import ROOT
from plots.redraw import figure_module, measured

# Counts and products of what the table says; what is fitted may round otherwise on another machine.
TABLES = ("flops_table", "least_dim_table", "cost_table")
DRAWN = sorted(
    path for table in TABLES for path in (ROOT / "results").glob(f"*/figures/{table}.md")
)


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_a_committed_table_is_drawn_from_its_results(path, tmp_path):
    folder: Path = path.parents[1]
    experiment, results, plan = measured(folder.name, folder.parent)
    copy = tmp_path / folder.name
    copy.mkdir()
    for part in folder.iterdir():
        if part.name != "figures":
            (copy / part.name).symlink_to(part)
    figure_module(path.stem).draw(results, plan, experiment, copy / "figures")
    assert (copy / "figures" / path.name).read_text() == path.read_text()


REPORTS = sorted((ROOT / "results").glob("*/report.html"))


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.parent.name)
def test_a_committed_report_shows_the_committed_figures(report):
    """Drawing some figures alone leaves the report as it was."""
    shown = re.findall(
        r'<img alt="([^"]+)"[^>]* src="data:image/png;base64,([^"]+)"', report.read_text()
    )
    stale = [
        name
        for name, content in shown
        if base64.b64decode(content) != (report.parent / "figures" / f"{name}.png").read_bytes()
    ]
    assert shown and not stale
