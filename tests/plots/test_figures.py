"""Contents of the heatmap and other figures, and every figure of every committed table."""

import shutil
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.markers import CARETUP
from processes import ROOT

from common import UserError
from experiments import grid
from experiments.grid import load_experiment
from plots import bits, costs, curves, d90_by_task, data, heatmap, readme, required_dimension, style
from plots.__main__ import main
from plots.redraw import FIGURES, find_figure, redraw
from tasks.ed_local import EditDistanceLocal
from tests.plots.small_tables import cells, joined

COMMITTED = sorted(path.parent for path in (ROOT / "results").glob("*/results.csv"))
IDS = [path.name for path in COMMITTED]


@pytest.fixture
def redrawn(monkeypatch):
    """Return a function that redraws a committed table and returns, in place of the files, each
    figure's width and each text by its path."""
    widths, texts = {}, {}

    def measure(figure, path, mplstyle):
        figure.draw_without_rendering()
        assert figure.axes
        widths[path.stem] = figure.get_figwidth()

    monkeypatch.setattr(style, "save", measure)
    monkeypatch.setattr("plots.redraw.write_text", texts.__setitem__)

    def redrawn(folder, **options):
        redraw(load_experiment(folder.name), folder, **options)
        return widths, texts

    return redrawn


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("folder", COMMITTED, ids=IDS)
def test_committed_figures_and_readme_are_those_of_the_table(redrawn, capsys, folder):
    widths, texts = redrawn(folder, width=style.PAGE_WIDTH)
    assert capsys.readouterr().err == ""  # every figure of the YAML is drawn
    assert set(widths) == {path.stem for path in folder.glob("figures/*.png")}
    assert all(width <= style.PAGE_WIDTH for width in widths.values())
    page = folder / "README.md"
    assert texts == {page: page.read_text()}


def test_a_copy_of_published_results_can_be_drawn(redrawn, tmp_path):
    folder = Path(shutil.copytree(ROOT / "results" / "gates", tmp_path / "gates"))
    assert "\n| precision | float32 |" in redrawn(folder)[1][folder / "README.md"]


NARROW = {"width": style.COLUMN_WIDTH}
FITTING = [
    *((None, name, NARROW) for name in FIGURES),
    *((name, "heatmap", {**NARROW, "font_size": 10}) for name in ("match3", "tracking_depth")),
    ("bits", "bits", {"models": ["standard"]}),
    ("erase", "d90_by_task", {"models": ["last_lines_sparse"]}),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "figure", "options"), FITTING, ids=str)
def test_a_figure_fits_even_if_its_labels_leave_little_room(redrawn, name, figure, options):
    name = name or next(f.name for f in COMMITTED if figure in load_experiment(f.name).figures)
    widths, _ = redrawn(ROOT / "results" / name, figures=[figure], **options)
    assert widths[figure] <= options.get("width", style.PAGE_WIDTH)


def stripes(axes):
    """Return (left, bottom, width, colour) of every stripe in a heatmap panel."""
    (drawn,) = axes.collections
    boxes = [path.get_extents() for path in drawn.get_paths()]
    colors = [to_hex(drawn.cmap(drawn.norm(value))) for value in drawn.get_array()]
    return [(b.x0, b.y0, b.width, c) for b, c in zip(boxes, colors, strict=True)]


def test_heatmap_has_a_stripe_per_seed_and_the_median_in_a_cell():
    figure = heatmap.draw(cells({8: [0.2, 0.6, 0.95], 16: [0.97]}))
    assert figure._repr_png_().startswith(b"\x89PNG")  # in Jupyter
    axes = figure.axes[0]
    found = stripes(axes)
    assert len(found) == 4
    assert [color for *_, color in found] == [heatmap.CLASSES.colors[i] for i in (0, 2, 4, 4)]
    assert found[0][2] == pytest.approx(heatmap.MARGIN / 3)
    assert found[3][2] == pytest.approx(heatmap.MARGIN)
    assert [text.get_text() for text in axes.texts if text.get_text()] == ["60", "97", "numbers"]


def test_heatmap_draws_d90_left_of_the_first_passing_dim_and_leaves_gaps_blank():
    table = joined(cells({8: [0.2], 16: [0.97]}), cells({16: [0.3]}, size=10))
    axes = heatmap.draw(table).axes[0]
    (bar,) = [line for line in axes.lines if line.get_color() == "black"]
    assert list(bar.get_xdata()) == [0.5, 0.5]
    assert list(bar.get_ydata()) == [-0.5, 0.5]
    assert len(stripes(axes)) == 3


def test_heatmap_marks_the_papers_dim():
    """64 for standard attention with 6 operators."""

    def marks(*dims):
        axes = heatmap.draw(cells({dim: [0.97] for dim in dims}, task="arithmetic", size=6)).axes[0]
        red = [line for line in axes.lines if line.get_color() == heatmap.PAPER["color"]]
        return [list(line.get_xdata()) for line in red], [text.get_text() for text in axes.texts]

    for dims in ((32, 64, 128), (32, 96)):
        assert marks(*dims)[0] == [[0.5, 0.5]]  # left of the first D that is enough
    lines, texts = marks(16, 32)
    assert not lines and "→64" in texts


@pytest.mark.parametrize(("accuracy", "text"), [(0.8999, "89"), (0.9, "90"), (0.996, "100")])
def test_heatmap_does_not_round_up_to_ninety(accuracy, text):
    axes = heatmap.draw(cells({8: [accuracy], 16: [0.1]})).axes[0]
    assert axes.texts[0].get_text() == text


def test_required_dimension_has_an_arrow_where_none_passes():
    table = joined(cells({8: [0.1], 16: [0.97]}), cells({8: [0.1], 64: [0.3]}, size=9, max_len=21))
    axes = required_dimension.draw(table).axes[0]
    (stem,) = [seg for bars in axes.collections for seg in bars.get_segments() if seg[0, 1] == 64]
    heads = [line.get_ydata().tolist() for line in axes.lines if line.get_marker() == CARETUP]
    assert [stem[1, 1]] in heads and stem[1, 1] > 64


def test_costs_places_cheaper_models_further_right():
    table = joined(cells({8: [0.95]}, state_bytes=800), cells({8: [0.95]}, model="linear"))
    state = costs.draw(table).axes[0].collections[0].get_offsets()[0]
    assert state[0] == pytest.approx(np.log2(800 / 64))


def test_costs_uses_the_same_dot_size_for_a_task_size_in_every_panel():
    sizes = {"linear": (4, 10), "sparse": (10,), "standard": (4, 10)}
    table = joined(*(cells({8: [0.95]}, model=model, size=size)
                     for model, own in sizes.items() for size in own))  # fmt: skip
    linear, sparse = (axes.collections[0].get_sizes() for axes in costs.draw(table).axes)
    assert set(linear) == {12, 23} and set(sparse) == {23}


def test_costs_counts_the_sizes_with_a_d90_of_those_tried():
    table = joined(*(cells({8: [0.95]}, size=size) for size in (3, 4, 6)),
                   cells({8: [0.95]}, size=3, model="linear"),
                   cells({8: [0.5]}, size=4, model="linear"))  # fmt: skip
    assert costs.draw(table).axes[0].get_title().replace("\n", " ") == "Linear (1 of 2 sizes)"


def test_d90_by_task_is_in_the_order_of_the_scores():
    table = joined(*(cells({8: [0.95]}, model=model) for model in ("standard", "linear", "mine")))
    figure = d90_by_task.draw(table, scores={"standard": 1.0, "mine": 1.5, "linear": 2.0})
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == ["Standard (1.00)", "mine (1.50)", "Linear (2.00)"]


def points(axes):
    """The points of every line but the rule at 90 %."""
    return [line.get_xydata().tolist() for line in axes.lines if line.get_linestyle() != ":"]


def test_curves_draws_the_records_curve_and_a_ring_where_it_stopped_early():
    """Of the size trained at, 4, although measured at 6."""
    table = cells({8: [0.5]}, size=6).assign(stopped="solved")
    curve = {"step": [20, 40], "validation_chain_exact_match": [0.25, 0.98]}
    record = {"curve": curve, "config": {"task": {"size": 4}}}
    axes = curves.draw(table, records={table["cell"][0]: record}).axes[0]
    assert points(axes) == [[[20, 25], [40, 98]], [[40, 98]]]
    assert axes.get_ylabel() == "LIS, n = 4"


def test_errors_draws_survival_in_percent():
    table = cells({8: [0.5]})
    counts = {"by_position": [[0, 10, 100], [1, 9, 90]]}
    axes = curves.draw_errors(table, records={table["cell"][0]: {"errors": counts}}).axes[0]
    assert np.allclose(points(axes), [[[0, 90], [1, 81]]])


def test_bits_draws_what_is_needed_enough_and_held():
    """16 numbers, int8 enough; 8 numbers, no format enough. Evaluated at another size."""
    same = {"task": "ed_local", "size": 9, data.STATE_FORMAT: "int8"}
    table = joined(cells({8: [0.95]}, **same), cells({8: [0.1]}, model="linear", **same))
    task = {"_target_": "tasks.ed_local.EditDistanceLocal", "size": 4, "capacity": 9}
    config = {"task": task, "measure": {"task": {"size": 9}}}
    records = {cell: {"config": config} for cell in table["cell"]}
    axes = bits.draw(table.assign(state_bytes=[64, 32]), records=records).axes[0]
    (span,), (bars,) = axes.patches, axes.collections
    low, high = EditDistanceLocal(9).state_bits()
    assert np.allclose([span.get_x(), span.get_x() + span.get_width()], [low, high])
    ends = [segment[:, 0].tolist() for segment in bars.get_segments()]
    assert np.allclose(ends, [[high, 512], [high, 256]])
    enough, held = points(axes)
    assert np.allclose(enough, [[128, 0], [np.nan, 1]], equal_nan=True)
    assert held == [[512, 0], [256, 1]]


def test_models_have_distinct_styles():
    looks = [(look.color, look.marker) for look in style.MODELS.values()]
    assert len(set(looks)) == len(looks)
    models = joined(*(cells({8: [0.95]}, model=model) for model in ("standard", "mine", "other")))
    found = style.line_looks(models.assign(row=models["model"])).values()
    assert len({(look["color"], look["marker"]) for look in found}) == 3
    alone = models.assign(row=models["model"], model="mine")
    assert len({look["color"] for look in style.line_looks(alone).values()}) == 3


@pytest.mark.parametrize(
    ("facets", "said"),
    [({"x": "dims"}, "dims: .*did you mean dim"), ({"only": {"sizes": 4}}, "did you mean size"),
     ({"only": {"size": 99}}, "no finished row matches")],
)  # fmt: skip
def test_facets_that_match_no_row_are_reported(facets, said):
    for draw in (heatmap.draw, costs.draw, required_dimension.draw):
        with pytest.raises(UserError, match=said):
            draw(cells({8: [0.95]}), facets=facets)


@pytest.mark.parametrize("facets", [{"rows": []}, {"columns": ["format"]}])
def test_a_square_of_several_models_or_tasks_is_reported(facets):
    table = joined(cells({8: [0.1]}), cells({8: [0.95]}, model="linear"),
                   cells({8: [0.5]}, task="copy"))  # fmt: skip
    with pytest.raises(UserError, match="share a square"):
        heatmap.draw(table, facets=facets)


def test_a_setting_that_one_model_lacks_can_be_an_axis():
    window = "model.mixer.window"
    sliding = [cells({8: [0.5]}, model="sliding_window", **{window: value}) for value in (4, 8)]
    figure = heatmap.draw(joined(cells({8: [0.9]}), *sliding), facets={"x": window, "rows": []})
    ticks = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert ticks == ["", "4 keys", "8 keys"]


def test_facets_may_name_the_keys_of_the_grid():
    table = joined(*(cells({8: [0.9]}, layers=layers) for layers in (1, 2, 3)))
    facets = {"x": "model.num_layers", "only": {"model.num_layers": [1, 2]}}
    for facets["y"] in ("task.size", "measure.task.size"):
        assert heatmap.points(table, facets)[["x", "y"]].to_numpy().tolist() == [[1, 4], [2, 4]]
    assert readme.shown(facets, table) == "Figures show only 1 layer, 2 layers."


def test_costs_rejects_too_many_panels():
    models = ["standard", "linear", "sparse", "gla", "lstm", "taylor", "retnet", "mamba2"]
    table = joined(*(cells({8: [0.95]}, model=model) for model in models))
    with pytest.raises(UserError, match="models="):
        costs.draw(table)


def test_drawing_applies_style_sheet_width_and_font_size_and_keeps_rcparams(tmp_path):
    before, sheet = dict(matplotlib.rcParams), tmp_path / "mine.mplstyle"
    sheet.write_text("axes.facecolor: 123456\n")
    table = cells({8: [0.2], 16: [0.95]})
    figure = heatmap.draw(table, mplstyle=sheet, width=3.25, font_size=9)
    assert dict(matplotlib.rcParams) == before
    assert to_hex(figure.axes[0].get_facecolor()) == "#123456"
    assert figure.get_figwidth() <= 3.25
    assert figure.axes[0].texts[0].get_fontsize() == 9


@pytest.fixture
def published(tmp_path, monkeypatch):
    """Change to a folder with one experiment's results, placed where a sweep writes them."""
    folder = tmp_path / "outputs" / "mine"
    folder.mkdir(parents=True)
    both = [cells({8: [0.1], 16: [0.97]}, model=model) for model in ("standard", "linear")]
    joined(*both).to_csv(folder / "results.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def drawn(published, capsys):
    """Return a function that calls `python -m plots` and returns the file names it prints."""

    def drawn(*words):
        main(["experiment=mine", *words])
        paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
        assert all(path.exists() for path in paths)
        return [path.name for path in paths]

    return drawn


def test_a_table_without_yaml_has_the_default_figures(drawn):
    assert {"heatmap.png", "costs.png", "README.md"} <= set(drawn())


def test_outputs_take_precedence_over_results(published, drawn):
    shutil.copytree("outputs", "results")
    drawn()
    assert (published / "README.md").exists() and not Path("results/mine/README.md").exists()
    published.parent.rename("elsewhere")
    drawn()
    assert Path("results/mine/README.md").exists()


def test_formats_and_figures_can_be_chosen(published, drawn):
    names = drawn("format=pdf,tex", "figures=heatmap,tables", "exclude=linear")
    assert {"heatmap.pdf", "d90.tex"} <= set(names) and "README.md" not in names
    assert (published / "figures" / "some_models" / "heatmap.pdf").exists()
    assert not [name for name in names if name.endswith((".png", ".csv"))]


def test_models_without_a_score_are_drawn(published):
    suite = grid.Experiment("suite", "", [], figures=["score", "d90_by_task"])
    assert [path.name for path in redraw(suite, published)] == ["d90_by_task.png", "README.md"]


def test_an_experiment_from_a_custom_config_dir(published, drawn):
    conf = Path("conf/experiment")
    conf.mkdir(parents=True)
    (conf / "mine.yaml").write_text("description: Ours.\ngrid: [{seed: [0]}]\nfigures: [heatmap]\n")
    published.parent.rename("results")
    names = drawn("--config-dir=conf", "results_dir=results")
    assert names == ["heatmap.png", "README.md"]
    text = Path("results/mine/README.md").read_text()
    assert "Ours." in text and "*Accuracy: the share of correct final answers" in text
    (conf / "mine.yaml").write_text("description: x\ngrid: [{seed: [0]}]\nfigure: [heatmap]\n")
    with pytest.raises(UserError, match="figure"):
        drawn("--config-dir", "conf", "results_dir=results")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("experiment=mine widht=3", "did you mean width"),
        ("experiment=overnigt", "did you mean overnight"),
        ("experiment=mine width=wide", "width='wide'"), ("experiment=mine format=gif", "='gif'"),
        ("experiment=mine models=standrad", "did you mean standard"),
        ("experiment=mine figures=heatmpa", "did you mean heatmap"),
        ("experiment=mine exclude=standard,linear", "no model is left"),
        ("", "experiment: Field required"),
        ("experiment=mine config_dir=nope", "config_dir=nope: no such folder"),
    ],
)  # fmt: skip
def test_typing_mistakes_are_reported_in_one_line(published, words, said):
    with pytest.raises(UserError, match=said) as found:
        main(words.split())
    assert "\n" not in str(found.value)


def test_a_figure_that_cannot_be_drawn_is_reported(published, capsys):
    experiment = grid.Experiment("mine", "", [], figures=["curves"])
    assert [path.name for path in redraw(experiment, published)] == ["README.md"]
    assert capsys.readouterr().err.startswith("curves is not drawn: these runs have no")


def test_a_figure_can_be_a_custom_module(tmp_path, monkeypatch):
    assert find_figure("plots.heatmap") is heatmap.draw
    (tmp_path / "my_figure.py").write_text("from plots.heatmap import draw\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_figure("my_figure") is heatmap.draw


def test_required_dimension_shows_the_papers_exponent_and_the_brackets():
    measured = {8: [0.1], 16: [0.95]}
    table = joined(*(cells(measured, size=n, max_len=own, model="linear")
                     for n, own in ((4, 10), (9, 40))))  # fmt: skip
    axes = required_dimension.draw(table).axes[0]
    assert [[10, 16], [40, 32]] in [line.get_xydata().tolist() for line in axes.lines]
    bars = [bar.get_segments() for bar in axes.collections]
    assert [segment[:, 1].tolist() for bar in bars for segment in bar].count([8, 16]) == 2


def test_an_equal_cost_is_not_cheaper():
    table = joined(cells({8: [0.95]}), cells({8: [0.95]}, model="linear"))
    texts = {text.get_text() for text in costs.draw(table).axes[0].texts}
    assert "0/1" in texts and "1/1" not in texts
