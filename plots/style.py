"""Sizes, fonts, names and colours of tasks and models in all figures. Colours are Okabe and Ito's
and Tol's, chosen for colour-blind readers."""

import functools
import io
import itertools
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

import common

COLUMN_WIDTH = 3.25  # inches: one column of a two-column paper
PAGE_WIDTH = 6.75  # inches: both columns
FONT_SIZE = 7.0  # points
LETTER = 0.07  # inches: the width of most letters
LEGEND_ROW = 0.14  # inches
GREY = "#595959"
RULE: dict[str, Any] = {"color": GREY, "linewidth": 0.7, "linestyle": ":", "zorder": 1}
STYLE = Path(__file__).with_name("cotcost.mplstyle")


class TaskLook(NamedTuple):
    """A task's name and what its size counts (n for yours)."""

    label: str
    unit: str


class ModelLook(NamedTuple):
    """A model's name, colour and marker."""

    label: str
    color: str
    marker: str


TASKS = {
    "arithmetic": TaskLook("Arithmetic", "operators"),
    "ed": TaskLook("ED", "letters"),
    "lis": TaskLook("LIS", "numbers"),
    "ed_local": TaskLook("ED_Local", "letters"),
    "word": TaskLook("Word problem", "letters"),
    "closure": TaskLook("Closure", "letters"),
    "match3": TaskLook("Match3", "numbers"),
    "mqar": TaskLook("MQAR", "pairs"),
    "copy": TaskLook("Copy", "letters"),
}
MODELS = {
    "standard": ModelLook("Standard", "#0072B2", "o"),
    "last_lines": ModelLook("Erasing", "#E69F00", "D"),
    "last_lines_prompt": ModelLook("Erasing, prompt kept", "#882255", "P"),
    "last_lines_sparse": ModelLook("Erasing, sparse", "#44AA99", "X"),
    "last_lines_sparse_prompt": ModelLook("Erasing, sparse, prompt kept", "#661100", "h"),
    "linear": ModelLook("Linear", "#D55E00", "s"),
    "sparse": ModelLook("Sparse", "#009E73", "^"),
    "sliding_window": ModelLook("Sliding window", "#E69F00", "v"),
    "taylor": ModelLook("Taylor", "#999933", "D"),
    "based": ModelLook("Based", "#56B4E9", "p"),
    "retnet": ModelLook("RetNet", "#332288", "<"),
    "gla": ModelLook("GLA", "#882255", ">"),
    "mamba2": ModelLook("Mamba-2", "#117733", "h"),
    "delta_net": ModelLook("DeltaNet", "#AA4499", "d"),
    "gated_delta_net": ModelLook("Gated DeltaNet", "#661100", "P"),
    "delta_product": ModelLook("DeltaProduct", "#E69F00", "X"),
    "hybrid": ModelLook("Hybrid", "#44AA99", "8"),
    "lstm": ModelLook("LSTM", "#000000", "*"),
    "running_mean": ModelLook("Running mean", "#999999", "H"),
    "tensor": ModelLook("Tensor", "#CC79A7", "D"),
    "tensor_linear": ModelLook("Tensor, kernelised", "#CC79A7", "*"),
}
COLORS = ("#444444", "#AA4499", "#999933", "#56B4E9", "#117733")
YOURS = tuple(zip(4 * COLORS, 5 * "DPv*", strict=True))  # colours and markers of your models
CATEGORIES = ("#56B4E9", "#CC79A7", "#E69F00", "#009E73", "#0072B2", "#D55E00", "#882255")
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)))


def styled(function: Callable[..., Figure]) -> Callable[..., Figure]:
    """Draw in the project's style and that of the sheet `mplstyle`, at most `width` inches wide;
    `font_size` in points scales it all. Inside `function` lengths are those at `FONT_SIZE`;
    `new_figure` scales them."""

    @functools.wraps(function)
    def wrapper(
        *args: Any,
        width: float = PAGE_WIDTH,
        font_size: float = FONT_SIZE,
        mplstyle: Path | None = None,
        **options: Any,
    ) -> Figure:
        sheets = [*_sheets(mplstyle), {"font.size": font_size}]
        with matplotlib.style.context(sheets, after_reset=True):
            return function(*args, width=width * FONT_SIZE / font_size, **options)

    return wrapper


def _sheets(mplstyle: Path | None) -> list[Any]:
    return [STYLE, mplstyle] if mplstyle else [STYLE]


class NotebookFigure(Figure):
    """Jupyter shows other figures only once pyplot is in use."""

    def _repr_png_(self) -> bytes:
        return rendered(self, "png", dpi=150)


def new_figure(width: float, height: float, dense: bool = False) -> Figure:
    """An empty figure, sizes in inches at `FONT_SIZE`; `dense` has narrow gaps, for grids."""
    gaps: dict[str, Any] = (
        {"w_pad": 0.03, "h_pad": 0.03, "hspace": 0.02, "wspace": 0.01} if dense else {}
    )
    scale = matplotlib.rcParams["font.size"] / FONT_SIZE
    size = (round(width * scale, 6), round(height * scale, 6))
    return NotebookFigure(figsize=size, layout=ConstrainedLayoutEngine(**gaps))


def save(figure: Figure, path: Path, mplstyle: Path | None = None) -> None:
    """Write a figure in the format of its suffix."""
    common.write_bytes(path, rendered(figure, path.suffix[1:], mplstyle))


def rendered(figure: Figure, form: str, mplstyle: Path | None = None, **options: Any) -> bytes:
    """The figure in format `form`, without timestamps; `options` are those of `savefig`."""
    content = io.BytesIO()
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(form)
    with matplotlib.style.context(_sheets(mplstyle), after_reset=True):
        figure.savefig(content, format=form, metadata=metadata, **options)
    return content.getvalue()


def task_look(task: str) -> TaskLook:
    return TASKS.get(task) or TaskLook(task, "n")


def size_in_words(task: str, size: int) -> str:
    """E.g. "1 operator", "4 letters"; "n = 4" for a task of yours."""
    unit = task_look(task).unit
    return f"n = {size}" if unit == "n" else f"{size} {unit.removesuffix('s' * (size == 1))}"


def model_look(model: str) -> ModelLook:
    return MODELS.get(model) or ModelLook(model, *YOURS[0])


def line_looks(rows: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Colour, marker and dashes of each label `row`. Variants of a model differ in dashes and
    fill; of the only model, in colour and marker."""
    looks, seen = {}, dict[str, int]()
    alone = rows["model"].nunique() == 1
    labels = zip(rows["row"], rows["model"], strict=True)
    yours = [model for model in rows["model"].unique() if model not in MODELS]
    own = {model: ModelLook(model, *look) for model, look in zip(yours, itertools.cycle(YOURS))}
    for label, model in dict.fromkeys(labels):
        look, variant = own.get(model) or MODELS[model], seen.get(model, 0)
        seen[model] = variant + 1
        if alone and variant:
            look, variant = ModelLook(model, *YOURS[variant % len(YOURS)]), 0
        looks[label] = {
            "color": look.color,
            "marker": look.marker,
            "linestyle": DASHES[variant % len(DASHES)],
            "markerfacecolor": look.color if variant == 0 else "white",
        }
    return looks


def wrapped(text: str, inches: float) -> str:
    """Text on lines of this width, broken at commas if that is enough, else at spaces and `_`."""
    width = max(int(inches / LETTER), 4)
    parts = ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in text.split(", "))
    lines = textwrap.wrap(parts, width, break_long_words=False, break_on_hyphens=False)
    fill = functools.partial(textwrap.fill, width=width, break_long_words=False)
    return "\n".join(
        fill(line.replace("\N{NO-BREAK SPACE}", " ").replace("_", "_ ")).replace("_ ", "_")
        for line in lines
    )


def legend_below(figure: Figure, looks: Mapping[str, Mapping[str, Any]], x_label: str = "") -> None:
    """Put a legend (`looks` by label) below the figure, in as few rows as fit, and above it the
    label of the x axes. A legend of many rows makes the figure higher."""
    room = figure.get_figwidth() * 72 / (0.52 * matplotlib.rcParams["font.size"])
    letters = [len(label) + 9 for label in looks]  # 9: line and spaces

    def fits(columns: int) -> bool:
        return sum(part.max() for part in np.array_split(letters, columns)) <= room

    columns = next(filter(fits, range(len(looks), 0, -1)), 1)
    scale = matplotlib.rcParams["font.size"] / FONT_SIZE
    more = max(0, -(-len(looks) // columns) - 2) * LEGEND_ROW
    figure.set_figheight(figure.get_figheight() + more * scale)
    inches = figure.get_figwidth() / scale
    handles = [Line2D([], [], label=label, **look) for label, look in looks.items()]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, title=wrapped(x_label, inches),
        title_fontsize="medium",
    )  # fmt: skip
