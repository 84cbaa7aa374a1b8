"""Contents of the heatmap and other figures, and every figure of every committed table."""

import functools
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
from experiments.table import read_cells, read_table
from plots import (
    costs,
    d90_by_task,
    data,
    heatmap,
    readme,
    required_dimension,
    score,
    style,
    tables,
)
from plots.__main__ import main
from plots.redraw import FIGURES, SCORE, TABLES, find_figure, redraw
from tests.plots.small_tables import cells, joined

COMMITTED = sorted(path.parent for path in (ROOT / "results").glob("*/results.csv"))
IDS = [path.name for path in COMMITTED]


@functools.cache
def results_of(folder):
    return read_table(folder), data.read_speeds(folder), read_cells(folder)


def draw_and_measure(folder, name, width):
    experiment, (table, speeds, records) = load_experiment(folder.name), results_of(folder)
    scores = None
    if SCORE in experiment.figures:
        scored = score.scores_of(experiment, table, records)
        table, scores = scored.table, {row["name"]: row["score"] for row in scored.rows}
    options = {"facets": experiment.facets, "records": records, "speeds": speeds, "scores": scores}
    figure = FIGURES[name](table, width=width, **options)
    figure.draw_without_rendering()
    assert figure.axes
    assert figure.get_figwidth() <= width


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("folder", COMMITTED, ids=IDS)
def test_every_figure_of_every_committed_table_is_drawn(folder):
    for name in FIGURES.keys() & set(load_experiment(folder.name).figures):
        draw_and_measure(folder, name, style.PAGE_WIDTH)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", FIGURES)
def test_every_kind_of_figure_fits_a_column(name):
    folder = next(folder for folder in COMMITTED if name in load_experiment(folder.name).figures)
    draw_and_measure(folder, name, style.COLUMN_WIDTH)


@pytest.mark.parametrize("folder", COMMITTED, ids=IDS)
def test_committed_readme_matches_the_results(folder):
    experiment, (table, speeds, records) = load_experiment(folder.name), results_of(folder)
    names = [name for name in experiment.figures if name not in (TABLES, SCORE)]
    drawn = {name: find_figure(name) for name in names
             if (folder / "figures" / f"{name}.png").exists()}  # fmt: skip
    built = tables.build(table, speeds, experiment.facets, records)
    scored = None
    if SCORE in experiment.figures:
        scored = score.scores_of(experiment, table, records)
        built = {SCORE: score.frame(scored), **built}
    text = readme.write(experiment, folder, table, records, drawn, built, scored)
    assert text == (folder / "README.md").read_text()


def stripes(axes):
    """Return (left, bottom, width, colour) of every stripe in a heatmap panel."""
    (drawn,) = axes.collections
    boxes = [path.get_extents() for path in drawn.get_paths()]
    colors = [to_hex(drawn.cmap(drawn.norm(value))) for value in drawn.get_array()]
    return [(b.x0, b.y0, b.width, c) for b, c in zip(boxes, colors, strict=True)]


def test_heatmap_has_a_stripe_per_seed_and_the_median_in_a_cell():
    figure = heatmap.draw(cells({8: [0.2, 0.6, 0.95], 16: [0.97]}))
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


def test_costs_counts_the_sizes_with_a_d90_of_those_of_standard_attention():
    table = joined(*(cells({8: [0.95]}, size=size) for size in (3, 4, 6)),
                   cells({8: [0.95]}, size=3, model="linear"),
                   cells({8: [0.5]}, size=4, model="linear"))  # fmt: skip
    assert costs.draw(table).axes[0].get_title().replace("\n", " ") == "Linear, 1 of 3 sizes"


def test_d90_by_task_is_in_the_order_of_the_scores():
    table = joined(*(cells({8: [0.95]}, model=model) for model in ("standard", "linear", "mine")))
    figure = d90_by_task.draw(table, scores={"standard": 1.0, "mine": 1.5, "linear": 2.0})
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == ["Standard (1.00)", "mine (1.50)", "Linear (2.00)"]


def test_page_says_which_settings_its_figures_show():
    table = cells({8: [0.95]}, **{"recipe.learning_rate": 0.01})
    facets = {"only": {"recipe.learning_rate": 0.01, "task.monoid": ["A5"]}}
    assert readme.shown(facets, table) == "The figures show learning rate 0.01 only."
    assert readme.shown({}, table) == ""


def test_models_have_distinct_styles():
    looks = [(look.color, look.marker) for look in style.MODELS.values()]
    assert len(set(looks)) == len(looks)
    models = joined(*(cells({8: [0.95]}, model=model) for model in ("standard", "mine", "other")))
    found = style.line_looks(models.assign(row=models["model"])).values()
    assert len({(look["color"], look["marker"]) for look in found}) == 3


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
    assert ticks == ["", "window 4", "window 8"]


def test_costs_rejects_too_many_panels():
    models = ["standard", "linear", "sparse", "gla", "lstm", "taylor", "retnet", "mamba2"]
    table = joined(*(cells({8: [0.95]}, model=model) for model in models))
    with pytest.raises(UserError, match="models="):
        costs.draw(table)


def test_custom_style_sheet(tmp_path):
    sheet = tmp_path / "mine.mplstyle"
    sheet.write_text("axes.facecolor: 123456\n")
    figure = heatmap.draw(cells({8: [0.2], 16: [0.95]}), mplstyle=sheet)
    assert to_hex(figure.axes[0].get_facecolor()) == "#123456"


def test_drawing_keeps_rcparams_and_applies_the_given_width_and_font_size():
    before = dict(matplotlib.rcParams)
    figure = heatmap.draw(cells({8: [0.2], 16: [0.95]}), width=3.25, font_size=9)
    assert dict(matplotlib.rcParams) == before
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


def test_formats_and_figures_can_be_chosen(drawn):
    names = drawn("format=pdf,tex", "figures=heatmap,tables", "exclude=linear")
    assert {"heatmap.pdf", "d90.tex"} <= set(names) and "README.md" not in names
    assert not [name for name in names if name.endswith((".png", ".csv"))]


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
        ("experiment=mine width=wide", "width=wide"), ("experiment=mine format=gif", "format=gif"),
        ("experiment=mine models=standrad", "did you mean standard"),
        ("experiment=mine figures=heatmpa", "did you mean heatmap"),
        ("experiment=mine exclude=standard,linear", "no model is left"),
        ("", "experiment=... is missing"),
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
