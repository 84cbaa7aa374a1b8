"""`python -m benchmarks rates`: order, resuming, limits, table, figure; one small grid for real."""

import json
import math

import pytest
from config.identity import cell_name

from benchmarks import rates
from benchmarks.shared import cells
from benchmarks.shared.rate_figure import draw, median_steps


def row(job, steps=1000, solved=True, **changes):
    task, model, dim, factor, seed = job
    return {
        "task": task, "model": model, "dim": dim, "factor": factor, "seed": seed,
        "steps": steps, "solved": solved, "seconds": 10.0, "best_chain_exact_match": 0.99,
        "cell": cell_name(rates.config_of(job)), "limit_steps": rates.LIMIT_STEPS,
        "limit_seconds": rates.LIMIT_SECONDS[dim], **changes,
    }  # fmt: skip


def test_what_tells_most_comes_first():
    assert rates.PARTS[:2] == ((16, 64), (256,))
    jobs = rates.grid((16, 64), [])
    assert len(jobs) == len(set(jobs)) == 3 * 3 * 2 * 5
    assert {job[2] for job in jobs} == {16, 64} and {job[4] for job in jobs} == {0}
    assert all(job[3] == 1 for job in jobs[:18])
    assert all(job[3] in (0.5, 2) for job in jobs[18:54])
    assert all(job[3] in (0.25, 4) for job in jobs[54:])


def test_a_factor_multiplies_the_rate_of_the_recipe():
    for dim in rates.widths():
        ours = {f: rates.config_of(("lis", "linear", dim, f, 0)).recipe for f in rates.FACTORS}
        for factor, recipe in ours.items():
            peak = ours[1.0].peak_learning_rate(dim)
            assert recipe.peak_learning_rate(dim) == pytest.approx(factor * peak)
    assert rates.config_of(("ed", "sparse", 16, 1.0, 2)).seed == 2
    assert rates.config_of(("arithmetic", "sparse", 16, 1.0, 0)).task["size"] == 2


def test_more_seeds_go_to_the_best_rate_and_its_neighbours():
    steps = {0.25: 900, 0.5: 800, 1.0: 400, 2.0: 300, 4.0: 2000}
    rows = [row(("lis", "linear", 16, factor, 0), n) for factor, n in steps.items()]
    assert rates.repeats((16,), rows) == [
        ("lis", "linear", 16, factor, seed) for seed in (1, 2) for factor in (1.0, 2.0, 4.0)
    ]
    assert rates.repeats((16,), rows[:-1]) == []  # until the grid is complete
    rows[0]["steps"] = 100  # at the edge
    assert {job[3] for job in rates.repeats((16,), rows)} == {0.25, 0.5}
    censored = [{**r, "solved": False, "best_chain_exact_match": r["factor"] / 5} for r in rows]
    assert {job[3] for job in rates.repeats((16,), censored)} == {2.0, 4.0}


def test_beyond_the_largest_rate_where_it_is_the_best():
    steps = {0.25: 900, 0.5: 800, 1.0: 400, 2.0: 300, 4.0: 200}
    rows = [row(("lis", "linear", 16, factor, 0), n) for factor, n in steps.items()]
    assert rates.beyond((16,), rows[:-1]) == []  # until the grid is complete
    (further,) = rates.beyond((16,), rows)
    assert further == ("lis", "linear", 16, 8.0, 0)
    for n, around in ((100, {2.0, 4.0}), (5000, {2.0, 4.0})):
        found = rates.repeats((16,), [*rows, row(further, n)])
        assert {job[3] for job in found} == around
    rows[-1] |= {"solved": False, "best_chain_exact_match": 1.0}
    assert rates.beyond((16,), rows) == []


def test_rows_of_another_recipe_or_limit_do_not_count():
    job = ("ed", "standard", 64, 1.0, 0)
    good = [
        row(job),
        row(job, 4000, False),
        row(job, limit_steps=7),
    ]  # solved: limits do not matter
    bad = [row(job, cell="of-yesterday"), row(job, 7, False, limit_steps=7),
           row(job, 9, False, limit_seconds=1.0), {**row(job), "dim": 8}]  # fmt: skip
    assert rates.of_today([*good, *bad]) == good


def test_a_median_counts_censored_runs_as_longest():
    runs = [{"steps": 700, "solved": False}, {"steps": 900, "solved": True}]
    assert median_steps([*runs, {"steps": 800, "solved": True}]) == (900, True)
    assert median_steps([*runs, {"steps": 4000, "solved": False}]) == (700, False)
    assert median_steps(runs[1:]) == (900, True) and median_steps([]) is None


@pytest.fixture
def small(monkeypatch, tmp_path):
    """One task, two models, two widths, three rates, two seeds; a few dozen sequences."""
    monkeypatch.chdir(tmp_path)
    few = "data.train=200 data.validation=50 data.test=50"
    monkeypatch.setattr(cells, "BASKET_DATA", few)
    monkeypatch.setattr(rates, "SMALLER", {"arithmetic": "task.size=1"})
    monkeypatch.setattr(rates, "TASKS", ("arithmetic",))
    monkeypatch.setattr(rates, "MODELS", ("standard", "linear"))
    monkeypatch.setattr(rates, "PARTS", ((8,), (16,)))
    monkeypatch.setattr(rates, "FACTORS", (0.5, 1.0, 2.0))
    monkeypatch.setattr(rates, "BEYOND", 2.0)
    monkeypatch.setattr(rates, "LIMIT_SECONDS", {8: 60.0, 16: 60.0})
    monkeypatch.setattr(rates, "LIMIT_STEPS", 40)
    monkeypatch.setattr(rates, "VALIDATE_EVERY", 20)
    monkeypatch.setattr(rates, "SEEDS", (0, 1))
    monkeypatch.setattr(rates, "TARGET", 0.02)
    return tmp_path / "rates.json"


def test_a_small_grid_from_runs_to_figure(small, monkeypatch, capsys):
    rates.main(["jobs=1", "max_hours=0", f"record={small}"])
    assert not small.exists()
    rates.main(["jobs=1", f"record={small}"])
    rows = json.loads(small.read_text())["rows"]
    first = [r for r in rows if r["seed"] == 0]
    assert len(first) == 2 * 2 * 3
    assert len(first) < len(rows) <= len(first) + 2 * 2 * 3
    for r in rows:
        assert r["ended"] == ("solved" if r["solved"] else "out of steps")
        assert r["steps"] in (20, 40) and r["seconds"] > 0
        assert r["solved"] == (r["best_chain_exact_match"] >= 0.02)
        assert math.isclose(r["peak_rate"] / r["factor"], 0.01 * math.sqrt(32 / r["dim"]))
        assert r["commit"] and r["device"] and r["measured_at"]
    assert small.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith(f"{len(rows)} runs")
    monkeypatch.setattr(rates, "attempt", None)  # any run would fail
    rates.main(["jobs=1", f"record={small}"])
    assert json.loads(small.read_text())["rows"] == rows


def test_what_was_measured_is_kept_when_a_run_breaks(small, monkeypatch):
    measured = []

    def breaks_at_the_third(job):
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(job)
        return row(job)

    monkeypatch.setattr(rates, "attempt", breaks_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        rates.main(["jobs=1", f"record={small}"])
    assert [rates.key_of(r) for r in json.loads(small.read_text())["rows"]] == sorted(measured)


def test_the_table_tells_bounds_and_how_many_cells_a_rate_suits(capsys):
    steps = {0.25: 2000, 0.5: 900, 1.0: 400, 2.0: 300}
    rows = [row(("lis", "linear", 16, factor, 0), n) for factor, n in steps.items()]
    rows += [row(("lis", "sparse", 16, factor, 0), 4000, factor == 4) for factor in rates.FACTORS]
    rates.print_rows(rows)
    lines = capsys.readouterr().out.splitlines()
    text = {line.split()[1]: line.split()[3:] for line in lines[3:5]}
    assert text["linear"] == ["2000", "900", "400", "300", "-"]
    assert text["sparse"] == [">", "4000"] * 4 + ["4000"]
    assert lines[5].split()[5:] == "0 of 2 0 of 2 1 of 2 2 of 2 2 of 2".split()
    assert lines[6] == "9 runs, 0.03 core-hours"


def test_the_figure_is_drawn_of_what_there_is(tmp_path):
    path = tmp_path / "rates.png"
    draw([], path, {})
    empty = path.read_bytes()
    rows = [
        row(("lis", "linear", dim, f, 0), dim * 10, f > 1) for dim in rates.widths() for f in (1, 2)
    ]
    draw(rows, path, rates.sizes())
    assert path.read_bytes().startswith(b"\x89PNG") and path.read_bytes() != empty
