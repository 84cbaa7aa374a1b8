"""Accuracy by length, longest prefix by depth, accuracy by kind: on made-up tables and records."""

import json
import math

import made_up_tables as tables
import pandas as pd
import pytest

from plots import accuracy_by_kind, accuracy_by_length, depth
from plots.cells import gather
from plots.looks import variant_looks
from tasks import monoids


def panel(figure, row, column):
    return next(a for a in figure.axes if a.get_gid() == f"panel/{row}/{column}")


def line(axes, gid):
    return next(x for x in axes.lines if x.get_gid() == gid)


def said(figure):
    return " ".join(text.get_text() for text in figure.texts)


@pytest.fixture
def by_length():
    rows = [
        tables.row("word", model, size, 32, seed, format=format, layers=2, chance_accuracy=0.02,
                   cell=f"{monoid}-{format}-{model}-{size}-{seed}-{position}",
                   **{"task.monoid": monoid, "model.position": position},
                   answer_accuracy=0.1 * seed + size / 100)
        for monoid in ("A5", "Z60")
        for format in ("cot", "direct", "tagged")
        for model, position in (("standard", "sinusoidal"), ("standard", "rope"),
                                ("linear", "sinusoidal"))
        for size in (12, 16)
        for seed in ((0, 1) if size == 16 else (0,))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def plan_of(table):
    columns = [name for name in ("task.monoid", "model.position") if name in table]
    return tables.plan_of(table).assign(**{name: table[name] for name in columns})


def test_formats_stand_side_by_side_and_seeds_are_averaged(by_length, tmp_path):
    figure = accuracy_by_length.figure(by_length, plan_of(by_length), tables.experiment(), tmp_path)
    assert {a.get_gid() for a in figure.axes} == {
        f"panel/{monoid}/{format}"
        for monoid in ("A5", "Z60")
        for format in ("cot", "direct", "tagged")
    }
    axes = panel(figure, "A5", "tagged")
    gids = [x.get_gid() for x in axes.lines if str(x.get_gid()).startswith("cells/")]
    assert len(gids) == 3
    for gid in gids:
        assert list(line(axes, gid).get_xdata()) == [12, 16]
        assert line(axes, gid).get_ydata() == pytest.approx([12, 21])
    assert line(axes, "chance").get_ydata() == pytest.approx([2, 2])
    assert "Mean of 2 seeds at n = 16; one seed at n = 12 (bars" in said(figure)
    assert "expressible" in said(figure)


def test_seeds_that_differ_at_one_size_are_told_together(by_length, tmp_path):
    more = by_length[by_length["model"] == "standard"].assign(seed=9)
    more["cell"] += "-9"
    table = pd.concat([by_length, more[more["size"] == 12]], ignore_index=True)
    figure = accuracy_by_length.figure(table, plan_of(table), tables.experiment(), tmp_path)
    assert "Mean of 1 to 2 seeds (bars" in said(figure)


def test_sizes_that_were_never_planned_for_a_model_are_named(by_length, tmp_path):
    table = by_length[(by_length["model"] == "standard") | (by_length["size"] == 12)]
    figure = accuracy_by_length.figure(table, plan_of(table), tables.experiment(), tmp_path)
    assert "Not planned: n = 16 of Linear, sinusoidal positions." in " ".join(said(figure).split())
    figure = accuracy_by_length.figure(table, plan_of(by_length), tables.experiment(), tmp_path)
    assert "Not planned" not in said(figure)  # planned, and not run yet


def test_a_model_keeps_its_line_and_its_variants_have_others(by_length):
    by_length["model"] = by_length["model"].replace("standard", "sparse")
    looks = variant_looks(gather(by_length, plan_of(by_length)))
    assert {row: look["linestyle"] for row, look in looks.items()} == {
        "Linear, sinusoidal positions": "--",
        "Sparse, rotary positions": "-.",
        "Sparse, sinusoidal positions": "-",
    }


def test_cells_without_a_result_are_counted_not_drawn(by_length, tmp_path):
    kept = by_length[~((by_length["task.monoid"] == "A5") & (by_length["format"] == "cot"))]
    kept = kept[~((kept["model"] == "linear") & (kept["size"] == 16))]
    figure = accuracy_by_length.figure(kept, plan_of(by_length), tables.experiment(), tmp_path)
    assert "no results" in [text.get_text() for text in panel(figure, "A5", "cot").texts]
    linear = [x for x in panel(figure, "Z60", "cot").lines if "Linear" in str(x.get_gid())]
    assert [list(x.get_xdata()) for x in linear] == [[12]]
    assert "not run" in said(figure)


def test_what_letter_counts_are_worth_is_drawn_where_configurations_tell(by_length, tmp_path):
    (tmp_path / "configs").mkdir()
    for row in by_length.itertuples():
        monoid, format = row.cell.split("-")[:2]
        task = {"name": "word", "size": row.size, "format": format, "monoid": monoid}
        (tmp_path / "configs" / f"{row.cell}.yaml").write_text(json.dumps({"task": task}))
    figure = accuracy_by_length.figure(by_length, plan_of(by_length), tables.experiment(), tmp_path)
    for format in ("direct", "tagged"):
        assert line(panel(figure, "Z60", format), "counts").get_ydata() == pytest.approx([100, 100])
        drawn = line(panel(figure, "A5", format), "counts")
        assert list(drawn.get_xdata()) == [12, 16]
        assert drawn.get_ydata() == pytest.approx([17.8, 11.6], abs=0.05)
    with_chain = panel(figure, "A5", "cot").lines
    assert "counts" not in [x.get_gid() for x in with_chain]


def test_a_table_of_another_task_has_a_panel_per_task(tmp_path):
    table = tables.product(["lis", "ed"], ["standard"], [4, 6], [32])
    plan = tables.plan_of(table)
    figure = accuracy_by_length.figure(table, plan, tables.experiment(), tmp_path)
    assert len(figure.axes) == 2
    paths = accuracy_by_length.draw(table, plan, tables.experiment(), tmp_path)
    assert [path.name for path in paths] == ["accuracy_by_length.pdf", "accuracy_by_length.png"]
    assert all(path.stat().st_size for path in paths)


@pytest.fixture
def by_depth(tmp_path):
    """n* of A5 is 3 M + seed, of Z60 all 24; linear has no record, one run of A5 fails."""
    rows, folder = [], tmp_path / "errors"
    folder.mkdir()
    for monoid in ("A5", "Z60"):
        for model in ("standard", "linear"):
            for layers in (1, 2, 4):
                for seed in (0, 1):
                    cell = f"{monoid}-{model}-{layers}-{seed}"
                    own = {
                        "format": "tagged",
                        "layers": layers,
                        "cell": cell,
                        "task.monoid": monoid,
                    }
                    rows.append(tables.row("word", model, 24, 32, seed, **own))
                    prefix = 24 if monoid == "Z60" else 3 * layers + seed
                    record = {"by_position": [], "by_step": [], "longest_prefix": prefix}
                    if model == "standard":
                        (folder / f"{cell}.json").write_text(json.dumps(record))
    rows[0]["status"] = "failed"
    return pd.DataFrame(rows), tmp_path


def test_longest_prefixes_are_read_from_the_records(by_depth):
    table, folder = by_depth
    frame = depth.prefixes(depth._grid(table, plan_of(table)), folder)
    assert set(frame["model"]) == {"Standard"}
    found = frame[frame["group"] == "A5"].set_index(["layers", "seed"])["longest_prefix"]
    assert found.to_dict() == {(1, 1): 4, (2, 0): 6, (2, 1): 7, (4, 0): 12, (4, 1): 13}
    assert set(frame.loc[frame["group"] == "Z60", "longest_prefix"]) == {24}


def test_depth_draws_medians_on_a_logarithmic_axis(by_depth):
    table, folder = by_depth
    figure = depth.figure(table, plan_of(table), tables.experiment(), folder)
    axes = panel(figure, "", "A5")
    assert axes.get_yscale() == "log"
    drawn = line(axes, "cells/Standard")
    assert list(drawn.get_xdata()) == [1, 2, 4]
    assert list(drawn.get_ydata()) == [4, 6.5, 12.5]
    assert list(line(axes, "cells/Linear").get_xdata()) == []
    assert [text.get_text() for text in axes.get_yticklabels()] == ["4", "8", "16", "24"]
    assert "median of 1 to 2 seeds" in said(figure)


def test_the_slope_of_longest_prefixes_is_fitted(by_depth):
    table, folder = by_depth
    fitted = depth.fits(depth.prefixes(depth._grid(table, plan_of(table)), folder))
    fitted = fitted.set_index("group")
    slope = fitted.loc["A5"]
    assert slope["low"] < slope["doublings"] < slope["high"]
    # 3 M + seed doubles 1.0 times from one layer to two, 0.9 times from two to four.
    assert 0.45 < slope["doublings"] < 1.0
    assert (slope["depths"], slope["seeds"]) == (3, 2)
    assert math.isnan(fitted.loc["Z60", "doublings"])  # labelled to the end at every depth
    figure = depth.figure(table, plan_of(table), tables.experiment(), folder)
    assert f"A5, Standard: {slope['doublings']:.2f} [" in said(figure)
    drawn = line(panel(figure, "", "A5"), "fit/Standard")
    low, high = drawn.get_ydata()
    assert math.log2(high / low) / 3 == pytest.approx(slope["doublings"])


def test_prefixes_of_whole_words_are_marked_as_lower_bounds(by_depth):
    table, folder = by_depth
    figure = depth.figure(table, plan_of(table), tables.experiment(), folder)
    assert list(line(panel(figure, "", "Z60"), "bound").get_xdata()) == [1, 2, 4]
    assert "bound" not in [x.get_gid() for x in panel(figure, "", "A5").lines]
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "n* may be greater: no longer word was asked for" in shown
    assert "longest prefix at 90 %, n* (labels)" in " ".join(said(figure).split())


def test_fits_have_a_line_of_their_own_and_end_at_the_ceiling(by_depth):
    table, folder = by_depth
    for layers, prefix in ((1, 6), (2, 15), (4, 23)):
        for path in (folder / "errors").glob(f"A5-standard-{layers}-*"):
            record = {"by_position": [], "by_step": [], "longest_prefix": prefix}
            path.write_text(json.dumps(record))
    figure = depth.figure(table, plan_of(table), tables.experiment(), folder)
    fit = line(panel(figure, "", "A5"), "fit/Standard")
    assert fit.get_ydata()[1] == pytest.approx(24)
    assert fit.get_xdata()[0] == 1 and 3 < fit.get_xdata()[1] < 4
    handles = {handle.get_label(): handle for handle in figure.legends[0].legend_handles}
    explained = handles["fit, in its model's colour"]
    assert explained.get_linestyle() == fit.get_linestyle() == "--"
    ceiling = handles["all n = 24 labels"]
    assert ceiling.get_linestyle() != fit.get_linestyle()


def test_depths_that_were_never_planned_for_a_model_are_named(by_depth):
    table, folder = by_depth
    table = table[(table["model"] == "standard") | (table["layers"] == 1)]
    figure = depth.figure(table, plan_of(table), tables.experiment(), folder)
    assert "Not planned: M = 2, 4 of Linear." in " ".join(said(figure).split())


def test_an_exact_doubling_per_layer_is_found(by_depth):
    table, folder = by_depth
    for layers in (1, 2, 4):
        for path in (folder / "errors").glob(f"A5-standard-{layers}-*"):
            path.write_text(
                json.dumps({"by_position": [], "by_step": [], "longest_prefix": 2**layers})
            )
    fitted = depth.fits(depth.prefixes(depth._grid(table, plan_of(table)), folder))
    # n* = 2 lies in (2, 3], which lowers the slope a little.
    assert fitted.set_index("group").loc["A5", "doublings"] == pytest.approx(0.9, abs=0.12)


def test_a_prefix_of_no_label_is_drawn_at_the_foot(by_depth):
    table, folder = by_depth
    for path in (folder / "errors").glob("A5-*"):
        path.write_text('{"by_position": [], "by_step": [], "longest_prefix": 0}')
    figure = depth.figure(table, plan_of(table), tables.experiment(), folder)
    axes = panel(figure, "", "A5")
    assert set(line(axes, "cells/Standard").get_ydata()) == {depth.NONE}
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        "0",
        "1",
        "2",
        "4",
        "8",
        "16",
        "24",
    ]


def test_depth_without_records_says_so(by_depth, tmp_path):
    table, _ = by_depth
    paths = depth.draw(table, plan_of(table), tables.experiment(), tmp_path / "none" / "figures")
    assert [path.name for path in paths] == [
        "depth.pdf", "depth.png", "depth.csv", "depth_fit.csv",
    ]  # fmt: skip
    figure = depth.figure(table, plan_of(table), tables.experiment(), tmp_path / "none")
    assert "no records" in [t.get_text() for t in panel(figure, "", "A5").texts]


def test_kinds_are_pooled_over_seeds(tmp_path):
    table = tables.product(["closure"], ["standard"], [16], [64, 128], seeds=(0, 1))
    (tmp_path / "errors").mkdir()
    for number, cell in enumerate(table["cell"][:3]):
        record = {"by_position": [], "by_step": [], "by_kind": {"yes": [number, 10], "no": [5, 5]}}
        (tmp_path / "errors" / f"{cell}.json").write_text(json.dumps(record))
    frame = accuracy_by_kind.kinds(table, tables.plan_of(table), tmp_path)
    found = frame.set_index(["dim", "kind"])[["accuracy", "n_test", "seeds"]]
    dims = list(table["dim"][:3])
    assert dims.count(64) == 2 and dims.count(128) == 1
    both = [number for number, dim in enumerate(dims) if dim == 64]
    assert found.loc[(64, "yes")].tolist() == [sum(both) / 20, 20, 2]
    assert found.loc[(128, "no")].tolist() == [1.0, 5, 1]
    paths = accuracy_by_kind.draw(
        table, tables.plan_of(table), tables.experiment(), tmp_path / "figures"
    )
    assert [path.suffix for path in paths] == [".pdf", ".png", ".csv"]
    assert paths[2].read_text().splitlines()[0].endswith("kind,seeds,n_test,accuracy")


def test_kinds_are_drawn_beside_the_accuracy_over_all(tmp_path):
    table = tables.product(["closure"], ["standard", "linear"], [16], [64])
    (tmp_path / "errors").mkdir()
    for number, cell in enumerate(table["cell"]):
        kinds = {"yes": [8 + number, 10], "gap too long by one": [5, 20]}
        record = {"by_position": [], "by_step": [], "by_kind": kinds}
        (tmp_path / "errors" / f"{cell}.json").write_text(json.dumps(record))
    plan = tables.plan_of(table)
    table["chance_accuracy"] = [0.5, 0.52]
    figure = accuracy_by_kind.figure(table, plan, tables.experiment(), tmp_path)
    (axes,) = figure.axes
    assert line(axes, "chance").get_ydata() == pytest.approx([51, 51])
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == ["all", "yes", "gap too\nlong by\none"]
    points = line(axes, "cells/Linear")
    accuracy = table.loc[table["model"] == "linear", "answer_accuracy"].item()
    assert points.get_ydata().tolist() == [100 * accuracy, 25, 90]
    assert [round(x) for x in points.get_xdata()] == [0, 2, 1]


def closures(folder, **task):
    """Return closure of A5 and Z5 by seeds 0 and 1, direct of one model by seed 0 alone."""
    rows = [
        tables.row("closure", model, 16, 64, seed, format=format, chance_accuracy=0.5,
                   cell=f"{monoid}-{format}-{model}-{seed}", **{"task.monoid": monoid},
                   answer_accuracy=0.5 + 0.2 * seed)
        for monoid in ("A5", "Z5")
        for format, model, seeds in (("cot", "standard", 2), ("direct", "standard", 2),
                                     ("direct", "linear", 1))
        for seed in range(seeds)
    ]  # fmt: skip
    for name in ("errors", "configs"):
        (folder / name).mkdir()
    for row in rows:
        kinds = {"yes": [2 + 5 * row["seed"], 10]}
        record = {"by_position": [], "by_step": [], "by_kind": kinds}
        (folder / "errors" / f"{row['cell']}.json").write_text(json.dumps(record))
        own = {"name": "closure", "monoid": row["task.monoid"], "subset": None, "r": None, **task}
        (folder / "configs" / f"{row['cell']}.yaml").write_text(json.dumps({"task": own}))
    return pd.DataFrame(rows)


def test_kinds_show_the_range_of_the_seeds(tmp_path):
    table = closures(tmp_path)
    figure = accuracy_by_kind.figure(table, plan_of(table), tables.experiment(), tmp_path)
    axes = panel(figure, "A5", "direct")
    bars = {bar.get_gid(): bar.get_segments() for bar in axes.collections}
    ends = [(low, high) for (_, low), (_, high) in bars["range/Standard"]]
    assert ends == [pytest.approx((50, 70)), pytest.approx((20, 70))]
    assert [place for (place, _), _ in bars["range/Standard"]] == pytest.approx(
        list(line(axes, "cells/Standard").get_xdata())
    )
    assert "bars: minimum–maximum" in said(figure)


def test_a_model_without_a_planned_cell_is_said_to_have_none(tmp_path):
    table = closures(tmp_path)
    figure = accuracy_by_kind.figure(table, plan_of(table), tables.experiment(), tmp_path)
    told = {a.get_gid(): [text.get_text() for text in a.texts] for a in figure.axes}
    assert told == {
        f"panel/{monoid}/{format}": ["not planned: Linear"] if format == "cot" else []
        for monoid in ("A5", "Z5")
        for format in ("cot", "direct")
    }


def test_kinds_say_sizes_and_what_the_subgroup_is(tmp_path):
    table = closures(tmp_path)
    told = said(accuracy_by_kind.figure(table, plan_of(table), tables.experiment(), tmp_path))
    assert "n = 16 and D = 64" in told
    of = "F has index 5: of A5 the elements that fix point 1, of Z5 the identity alone. r = 10."
    assert of in told


def test_a_subgroup_of_ones_own_is_not_told_as_the_default(tmp_path):
    table = closures(tmp_path, subset=["12345"])
    told = said(accuracy_by_kind.figure(table, plan_of(table), tables.experiment(), tmp_path))
    assert "index" not in told


@pytest.mark.parametrize(
    ("name", "words"),
    [("A4xZ5", "the whole of A4"), ("Z60", "the multiples of 5"), ("Z7", "the identity alone"),
     ("S4", "the elements that fix point 1")],
)  # fmt: skip
def test_subgroups_in_words_are_those_of_the_task(name, words):
    group = monoids.monoid(name)
    told = {
        "the whole of A4": [e for e in group.elements if e.endswith(":0")],
        "the multiples of 5": [e for e in group.elements if e.isdigit() and int(e) % 5 == 0],
        "the identity alone": [group.elements[0]],
        "the elements that fix point 1": [e for e in group.elements if e[0] == "1"],
    }[words]
    assert accuracy_by_kind._subgroup(name) == words
    assert [group.elements[number] for number in group.subgroup] == told


def test_kinds_without_records_leave_the_accuracy_over_all(tmp_path):
    table = tables.product(["closure"], ["standard"], [16], [64])
    plan = tables.plan_of(table)
    paths = accuracy_by_kind.draw(table, plan, tables.experiment(), tmp_path / "none" / "figures")
    assert paths[2].read_text().splitlines()[0].endswith("kind,seeds,n_test,accuracy")
    figure = accuracy_by_kind.figure(table, plan, tables.experiment(), tmp_path / "none")
    assert len(line(figure.axes[0], "cells/Standard").get_ydata()) == 1
