"""The report: complete, self-contained, and usable in a real browser."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import made_up_tables as tables
import pandas as pd
import pytest

from plots import heatmap, report
from plots.deviations import DEVIATIONS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed (apt-get install chromium)"
)


def write(folder, table, plan=None, **fields):
    plan = tables.plan_of(table) if plan is None else plan
    experiment = tables.experiment(**fields)
    drawn = heatmap.draw(table, plan, experiment, folder / "figures")
    (path,) = report.write(table, plan, experiment, folder / "figures", drawn)
    return path


def data_of(path):
    found = re.search(r'<script id="data"[^>]*>(.*?)</script>', path.read_text(), re.S)
    return json.loads(found.group(1))


@pytest.fixture
def holes(tmp_path):
    """A quick table with one cell failed and one not run."""
    table = tables.quick()
    plan = tables.plan_of(table)
    tables.write_attachments(table, tmp_path)
    failed = tables.unmeasured("failed", model="sparse", size=4, dim=8)
    kept = table.drop(index=[0, len(table) - 4])
    return write(tmp_path, pd.concat([kept, pd.DataFrame([failed])]), plan)


def test_nothing_is_fetched_from_elsewhere(holes):
    text = holes.read_text()
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)
    assert "@import" not in text and "url(" not in text
    assert text.count("data:image/png;base64,") == 1


def test_cells_come_first_commands_are_marked_and_pictures_scroll(holes):
    text = holes.read_text()
    assert re.findall(r'<h2 id="(\w+)"', text) == [
        "cells", "figures", "runs", "missing", "deviations"
    ]  # fmt: skip
    assert len(re.findall(r'<code class="command">python', text)) == 2
    assert re.search(r'<div class="wide" tabindex="0"><img alt="heatmap"', text)


def test_every_run_its_files_and_the_missing_are_in_it(holes):
    data = data_of(holes)
    runs = [run for cell in data["cells"] for run in cell["runs"]]
    assert len(runs) == 35
    for run in runs:
        assert (holes.parent / run["config"]).exists() and (holes.parent / run["curve"]).exists()
    gaps = [(gap["state"], cell["model"]) for cell in data["cells"] for gap in cell["missing"]]
    assert sorted(gaps) == [("failed", "sparse"), ("not run", "standard")]


def test_deviations_and_commands_are_told(holes):
    text = html.unescape(holes.read_text())
    assert all(deviation in text for deviation in DEVIATIONS)
    assert "python sweep.py experiment=example" in text
    assert "python -m plots experiment=example" in text


def test_a_table_says_how_it_counts_and_what_it_finds(tmp_path):
    (tmp_path / "figures").mkdir()
    table, said = (tmp_path / f"figures/costs.{kind}" for kind in ("csv", "md"))
    table.write_text("model,D\nlinear,24\n")
    said.write_text("# Title\n\nCost <of> it.\n\n| model | D |\n|---|---|\n\n- It saves.\n")
    runs = tables.quick()
    folder, drawn = tmp_path / "figures", [table, said]
    (path,) = report.write(runs, tables.plan_of(runs), tables.experiment(), folder, drawn)
    shown = path.read_text().split("<summary>How this is counted</summary>")
    assert len(shown) == 2
    assert shown[1].startswith("<p>Cost &lt;of&gt; it.</p></details>\n<ul><li>It saves.</li></ul>")


def test_commands_name_the_folder_that_was_drawn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = tables.quick()
    for parent in ("results", "elsewhere"):
        folder = Path(parent, "example")
        tables.write_attachments(table, folder)
        page = write(folder, table)
        runs = [run for cell in data_of(page)["cells"] for run in cell["runs"]]
        assert all(f"config={folder}/configs/{run['cell']}.yaml" in run["command"] for run in runs)
        assert ("results_dir=elsewhere" in page.read_text()) == (parent == "elsewhere")


def test_a_real_experiments_missing_cells_come_with_the_exact_command(tmp_path):
    from config.grid import cells, load_experiment, planned

    experiment = load_experiment("quick")
    plan = planned(experiment)
    known = {"cell": plan["cell"][0], "recipe": "quick"}
    table = pd.DataFrame([tables.row(task="lis", size=4, dim=8, **known)])
    (path,) = report.write(table, plan, experiment, tmp_path / "figures", [])
    given = {cell.name: cell for cell in cells(experiment)}
    commands = [gap["command"] for cell in data_of(path)["cells"] for gap in cell["missing"]]
    assert len(commands) == len(plan) - 1
    words = " ".join(given[plan["cell"][1]].overrides)
    assert f"python train.py {words} experiment_name=quick" in commands


def test_the_report_tells_devices_that_trained_but_did_not_measure(tmp_path):
    """Crosswise, so that both devices occur as often on either side."""
    here, there = "cpu: one", "cuda: other"
    rows = [tables.row(size=4, dim=8, answer_accuracy=0.99), tables.row(size=4, dim=16)]
    table = pd.DataFrame(rows).assign(device=[here, there], trained_device=[there, here])
    for moved in (table, table.assign(trained_device=None)):
        (page,) = report.write(moved, tables.plan_of(moved), tables.experiment(), tmp_path, {})
        told = "Trained on" in page.read_text()
        assert told == moved["trained_device"].notna().all()


def test_names_cannot_break_the_page(tmp_path):
    evil = "</script><b>x"
    table = pd.DataFrame([tables.row(model=evil, cell="c")])
    path = write(tmp_path, table, name="<i>name", description="a & b")
    text = path.read_text()
    assert evil not in text and "<i>name" not in text
    assert data_of(path)["cells"][0]["model"] == evil


def browse(path, script, window="1200,900"):
    """Open the page, run ``script`` and return what it put into ``document.title`` as JSON."""
    page = path.with_name("probe.html")
    faults = "<script>window.faults=[];onerror=(m)=>faults.push(String(m))</script>"
    probe = f"<script>document.title=JSON.stringify((()=>{{{script}}})())</script></body>"
    text = path.read_text().replace("<head>", f"<head>{faults}", 1)
    page.write_text(text.replace("</body>", probe))
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         f"--user-data-dir={path.parent / 'profile'}", f"--window-size={window}", "--dump-dom",
         page.as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.S)
    assert title, done.stderr[-2000:]
    return json.loads(html.unescape(title.group(1)))


PROBE = """
const cells = [...document.querySelectorAll('.grid td')];
const good = cells.find((node) => node.textContent === SHOWN);
good.dispatchEvent(new Event('mouseenter'));
const card = document.getElementById('card');
const hovered = card.textContent, links = card.querySelectorAll('a').length;
good.click(); good.click();
document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}));
const hidden = card.hidden;
const column = (i) => [...document.querySelectorAll('#run-table tbody tr')]
  .map((row) => row.cells[i].textContent);
const place = data.run_columns.indexOf('answer_accuracy');
const button = document.querySelectorAll('#run-table th button')[place];
button.click(); const up = column(place);
button.click(); const down = column(place);
const filter = document.getElementById('filter');
filter.value = 'sparse dim=64'; filter.dispatchEvent(new Event('input'));
return {faults, count: cells.length, hovered, links, hidden, up, down,
  filtered: column(data.run_columns.indexOf('model')),
  first: document.querySelector('h2').id, copies: document.querySelectorAll('button.copy').length,
  missing: [...document.querySelectorAll('#missing-table tbody tr')].map((r) => r.textContent),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth};
"""


@needs_chromium
@pytest.mark.parametrize("window", ["1300,900", "500,900"])
def test_hover_sort_filter_and_missing_work_in_a_browser(holes, window):
    best = max(
        (c for c in data_of(holes)["cells"] if c["state"] == "done"), key=lambda c: c["accuracy"]
    )
    seen = browse(holes, PROBE.replace("SHOWN", json.dumps(best["shown"])), window)
    assert seen["faults"] == []
    assert seen["first"] == "cells" and seen["copies"] >= 3
    assert seen["count"] == 36
    title = (
        f"{best['row']}, Arithmetic, n = {best['size']}, L = {best['max_len']}, D = {best['dim']}"
    )
    assert title in seen["hovered"]
    assert f"{100 * best['accuracy']:.2f} %, one seed, 95 % interval" in seen["hovered"]
    assert "GFLOPs of one forward pass" in seen["hovered"] and seen["links"] == 3
    assert seen["hidden"] is True
    up = [float(value) for value in seen["up"] if value]
    assert up == sorted(up) and len(up) == 34
    assert seen["up"][-1] == "" and seen["down"][-1] == ""
    down = [float(value) for value in seen["down"] if value]
    assert down == up[::-1]
    assert set(seen["filtered"]) == {"sparse"} and len(seen["filtered"]) == 3
    assert len(seen["missing"]) == 2
    assert seen["wide"] <= 0


@needs_chromium
def test_five_thousand_cells_stay_usable(tmp_path):
    sizes, dims = range(2, 52), [8 * i for i in range(1, 26)]
    table = tables.product(["lis", "ed"], ["standard", "sparse"], sizes, dims)
    assert len(table) == 5000
    (path,) = report.write(
        table, tables.plan_of(table), tables.experiment(), tmp_path / "figures", []
    )
    assert path.stat().st_size < 12e6
    seen = browse(path, """
        const filter = document.getElementById('filter');
        filter.value = 'ed sparse 200'; filter.dispatchEvent(new Event('input'));
        const found = shown.length;
        filter.value = ''; filter.dispatchEvent(new Event('input'));
        document.getElementById('after').click();
        return {faults, found, cells: document.querySelectorAll('.grid td').length,
          rows: document.querySelectorAll('#run-table tbody tr').length,
          count: document.getElementById('count').textContent};
    """)  # fmt: skip
    assert seen["faults"] == []
    assert seen["cells"] == 5000 + 0 and seen["rows"] == 200
    assert seen["count"] == "201 to 400 of 5000 runs"
    expected = table.astype(str).agg(" ".join, axis=1).str.lower()
    assert seen["found"] == int(
        (expected.str.contains("ed") & expected.str.contains("sparse")
         & expected.str.contains("200")).sum()
    )  # fmt: skip
