"""Draw every figure and write every table of an experiment from its results table."""

import importlib.util
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common import UserError, did_you_mean, locate, write_text
from experiments.grid import Experiment
from experiments.table import read_cells, read_table
from plots import (
    bits,
    costs,
    curves,
    d90_by_task,
    data,
    heatmap,
    readme,
    required_dimension,
    score,
    style,
    tables,
)

FIGURES: dict[str, Callable[..., Any]] = {
    "costs": costs.draw,
    "heatmap": heatmap.draw,
    "required_dimension": required_dimension.draw,
    "d90_by_task": d90_by_task.draw,
    "curves": curves.draw,
    "errors": curves.draw_errors,
    "bits": bits.draw,
}
TABLES, SCORE = "tables", "score"
USUAL = ("costs", "heatmap", "required_dimension", TABLES)


def redraw(
    experiment: Experiment,
    folder: Path,
    formats: Sequence[str] = ("png",),
    figures: Sequence[str] = (),
    models: Sequence[str] = (),
    exclude: Sequence[str] = (),
    width: float = style.PAGE_WIDTH,
    font_size: float = style.FONT_SIZE,
    mplstyle: Path | None = None,
) -> list[Path]:
    """Write figures and tables of `folder`, which holds `results.csv`; returns the paths.

    `formats`: png, pdf, svg for figures, csv, md, tex for tables. `width`, `font_size` and
    `mplstyle` are those of `style.styled`. The README with the tables is written with png unless
    figures or models are selected; figures of some models go to figures/some_models. What cannot be
    drawn is an error if named in `figures`; a figure of the experiment's YAML is skipped with a
    note.
    """
    table = read_table(folder)
    if not (table["status"] == "done").any():
        said = f"no finished row to draw; run python sweep.py experiment={experiment.name}"
        raise UserError(f"{folder / 'results.csv'}: {said}")
    speeds, records = data.read_speeds(folder), read_cells(folder)
    wanted = list(figures or experiment.figures or USUAL)
    functions = figure_functions(wanted)
    with_score = SCORE in (*wanted, *experiment.figures)
    scored = score.scores_of(experiment, table) if with_score else None
    shown = scored.table if scored and len(scored.table) else table  # maybe none has a score
    names = dict.fromkeys([*table["model"], *shown["model"]])
    kept = data.select(list(names), models, exclude)
    table, shown = table[table["model"].isin(kept)], shown[shown["model"].isin(kept)]
    if not (shown["status"] == "done").any():
        raise UserError(f"no finished row of {', '.join(kept)}")
    place = folder / "figures" / ("some_models" if models or exclude else "")
    scores = {row["name"]: row["score"] for row in scored.rows} if scored else None
    pictures = [suffix for suffix in formats if suffix in ("png", "pdf", "svg")]
    drawn, paths = {}, []
    for name, draw in functions.items() if pictures else ():
        try:
            drawn[name] = draw(
                shown, facets=experiment.facets, records=records, speeds=speeds, scores=scores,
                width=width, font_size=font_size, mplstyle=mplstyle,
            )  # fmt: skip
        except UserError as error:
            if figures:
                raise UserError(f"{name}: {error}") from error
            if experiment.figures:
                print(f"{name} is not drawn: {error}", file=sys.stderr)
    for (name, figure), suffix in itertools.product(drawn.items(), pictures):
        paths.append(place / f"{name}.{suffix}")
        style.save(figure, paths[-1], mplstyle)
    built = {SCORE: score.frame(scored, kept)} if scored and SCORE in wanted else {}
    if TABLES in wanted:
        built |= tables.build(table, speeds, experiment.facets, records)
    for suffix in (suffix for suffix in formats if suffix in ("csv", "md", "tex")):
        for name, frame in built.items():
            paths.append(place / f"{name}.{suffix}")
            write_text(paths[-1], tables.as_text(frame, suffix))
    if "png" in formats and not (figures or models or exclude):
        paths.append(folder / "README.md")
        kinds = {name: functions[name] for name in drawn}
        text = readme.write(experiment, folder, table, records, kinds, built, scored)
        write_text(paths[-1], text)
    if not (paths or (functions and pictures)):
        asked = f"figures={','.join(wanted)} format={','.join(formats)}"
        raise UserError(f"{asked}: nothing to write (figures: png, pdf, svg; tables: csv, md, tex)")
    return paths


def figure_functions(names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """The functions that draw these figures; UserError for an unknown name."""
    return {name: find_figure(name) for name in names if name not in (TABLES, SCORE)}


def find_figure(name: str) -> Callable[..., Any]:
    """The function that draws a figure: ours, or `draw` of a module of your own."""
    if name in FIGURES:
        return FIGURES[name]
    if "." in name or importlib.util.find_spec(name):
        return locate(f"{name}.draw", "figures")
    known = (*FIGURES, TABLES, SCORE)
    near = did_you_mean(name, known)
    raise UserError(f"figures: unknown figure {name}; known: {', '.join(known)}{near}")
