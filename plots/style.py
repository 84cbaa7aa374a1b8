"""One look for all figures: sizes, fonts, colours, order and names of tasks and models.

Colours are Okabe and Ito's, safe for colour-blind readers; models differ in marker and line style
too, and the heatmap's colours grow evenly in brightness, so that everything reads in grey.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from PIL import Image

import common
from plots.text import FONT, short_name

COLUMN_WIDTH = 3.25  # inches: one column of a two-column paper
PAGE_WIDTH = 6.75  # inches: both columns
SMALL = 6.0  # points: running text and legends
SMALLEST = 5.5  # points: the smallest print anywhere

RC: dict[str, Any] = {
    "font.family": FONT,
    "text.parse_math": False,  # a `$` in a name is a dollar
    "font.size": 7,
    "axes.titlesize": 8,
    "axes.labelsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": SMALL,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "hatch.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.3,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "svg.hashsalt": "cotcost",
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "timezone": "UTC",
}

TASKS = {"arithmetic": "Arithmetic", "ed": "ED", "lis": "LIS", "ed_local": "ED_Local"}
TASKS |= {"word": "Word problem", "closure": "Closure", "match3": "Match3", "mqar": "MQAR"}
TASKS |= {"copy": "Copy"}
MODELS = {
    "standard": "Standard", "linear": "Linear", "sparse": "Sparse",
    "sliding_window": "Sliding window", "taylor": "Taylor", "based": "Based", "retnet": "RetNet",
    "gla": "GLA", "mamba2": "Mamba-2", "delta_net": "DeltaNet",
    "gated_delta_net": "Gated DeltaNet", "delta_product": "DeltaProduct", "hybrid": "Hybrid",
    "lstm": "LSTM", "running_mean": "Running mean", "tensor": "Tensor",
    "tensor_linear": "Tensor, kernelised",
}  # fmt: skip
_LOOKS = {
    "standard": ("#0072B2", "o", "-"),
    "linear": ("#D55E00", "s", "--"),
    "sparse": ("#009E73", "^", "-."),
}
# None is dotted: dotted lines are thresholds, theory and what is not known.
_SPARE_LOOKS = [
    ("#CC79A7", "D", (0, (8, 2))),
    ("#56B4E9", "v", (0, (5, 1))),
    ("#E69F00", "p", (0, (3, 1, 1, 1, 1, 1))),
    ("#000000", "d", (0, (1, 1))),
    ("#0072B2", "<", "--"),
    ("#D55E00", ">", (0, (8, 2))),
    ("#009E73", "h", (0, (5, 1))),
    ("#CC79A7", "*", "-"),
    ("#56B4E9", "p", "-."),
    ("#E69F00", "d", "--"),
    ("#000000", "8", "-"),
    ("#0072B2", "H", (0, (8, 2))),
    ("#D55E00", "v", "-."),
    ("#009E73", "p", (0, (8, 2))),
    ("#CC79A7", "d", (0, (5, 1))),
    ("#56B4E9", "D", "-"),
]
HEAT = "cividis"
GREY = "#595959"
THRESHOLD_LINE: dict[str, Any] = {"color": GREY, "linewidth": 0.8, "linestyle": ":"}
CHANCE_LINE: dict[str, Any] = {"color": GREY, "linewidth": 0.8, "linestyle": (0, (6, 2))}

P = ParamSpec("P")
R = TypeVar("R")


def styled(function: Callable[P, R]) -> Callable[P, R]:
    """Run ``function`` under our settings and leave the caller's matplotlib as it was."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(RC)
            return function(*args, **kwargs)

    return wrapper


def in_order(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the names, known ones first in the paper's order, then the others by alphabet."""
    names, known = set(names), list(known)
    return [name for name in known if name in names] + sorted(names - set(known))


def task_label(task: str) -> str:
    """Return the task's name as the paper writes it; a stranger's as it is."""
    return TASKS.get(task) or short_name(task)


def model_label(model: str) -> str:
    """Return the model's name as the paper writes it; a stranger's as it is."""
    return MODELS.get(model) or short_name(model)


def look(model: str, models: Sequence[str]) -> dict[str, Any]:
    """Return colour, marker and line style of ``model`` among all ``models`` of a figure."""
    strangers = [name for name in models if name not in _LOOKS]
    color, marker, linestyle = (
        _LOOKS.get(model) or _SPARE_LOOKS[strangers.index(model) % len(_SPARE_LOOKS)]
    )
    return {"color": color, "marker": marker, "linestyle": linestyle}


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of so many inches with its own canvas (no pyplot, no global state)."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, out: Path, name: str) -> list[Path]:
    """Write ``figure`` as vector PDF and as PNG under ``out``; equal figures give equal bytes."""
    # Into memory first: matplotlib's own writers tell of a full disk in words of their own.
    vector, pixels, compact = io.BytesIO(), io.BytesIO(), io.BytesIO()
    figure.savefig(vector, format="pdf", metadata={"CreationDate": None, "ModDate": None})
    figure.savefig(pixels, format="png")
    with Image.open(pixels) as picture:
        few = in_few_colors(picture.convert("RGB"), own_colors(figure))
        few.save(compact, "PNG", optimize=True, dpi=picture.info["dpi"])
    paths = []
    for suffix, content in (("pdf", vector), ("png", compact)):
        paths.append(out / f"{name}.{suffix}")
        common.write_bytes(paths[-1], content.getbuffer())
    return paths


def in_few_colors(picture: Image.Image, kept: Sequence[tuple[int, int, int]]) -> Image.Image:
    """Return an RGB picture in 256 colours: those of ``kept`` unchanged, the rest where most are.

    That takes a third of the bytes, and figures are kept in git.  Without ``kept`` a thin line in a
    large picture would take the nearest frequent colour.
    """
    rest = picture.quantize(256 - len(kept), dither=Image.Dither.NONE)
    palette = Image.new("P", (1, 1))
    palette.putpalette([level for color in kept for level in color] + (rest.getpalette() or []))
    return picture.quantize(palette=palette, dither=Image.Dither.NONE)


def own_colors(figure: Figure, most: int = 128) -> list[tuple[int, int, int]]:
    """Return the opaque colours of the figure's lines, patches, texts and colour meshes.

    Of a mesh the two ends of its range and, evenly, some between; all in all at most ``most``.
    """
    given: list[Any] = []
    for kind in (Line2D, Text):
        given += [item.get_color() for item in figure.findobj(kind)]  # type: ignore[attr-defined]
    for patch in figure.findobj(Patch):
        given += [patch.get_facecolor(), patch.get_edgecolor()]
    for mesh in figure.findobj(QuadMesh):
        given += list(mesh.cmap(np.linspace(0, 1, 33)))
    rgba = [to_rgba(color) for color in given]
    levels = [_levels(color) for color in rgba if color[3] == 1]
    return list(dict.fromkeys(levels))[:most]


def _levels(color: Sequence[float]) -> tuple[int, int, int]:
    red, green, blue = (round(255 * part) for part in color[:3])
    return red, green, blue


def write_text(text: str, path: Path) -> Path:
    """Write a text file whole: aside first, then into place."""
    common.write_text(path, text)
    return path


def percent(share: float, threshold: float = 0.9) -> str:
    """Return ``share`` in percent to one decimal, never rounded up to 100 or to the threshold."""
    share = round(share, 9)  # a mean of ones may lack a bit
    text = f"{100 * share:.1f}"
    if share < 1 and text == "100.0":
        return ">99.9"
    if share < threshold and float(text) >= 100 * threshold:
        return f"<{100 * threshold:.0f}"
    return "100" if share == 1 else text


def percent_range(low: float, high: float) -> tuple[str, str]:
    """Return both in percent to one decimal, rounded outwards so that what lies between stays."""
    down, up = np.floor(np.round(1000 * low, 6)), np.ceil(np.round(1000 * high, 6))
    first, last = ("100" if value >= 1000 else f"{value / 10:.1f}" for value in (down, up))
    return first, last


def luminance(color: Sequence[float]) -> float:
    """Return the relative luminance of an sRGB colour (WCAG 2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color[:3]]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def ink_on(color: Sequence[float]) -> str:
    """Return the ink, black or white, that has more contrast on ``color`` (WCAG 2, over 4.5)."""
    return "black" if (luminance(color) + 0.05) ** 2 > 1.05 * 0.05 else "white"


def percent_axis(axes: Axes) -> None:
    """Let ``axes`` go upward from 0 to 100 percent, with room for lines at either end."""
    axes.set_ylim(-5, 105)
    axes.set_yticks([0, 25, 50, 75, 100])


def say_in(axes: Axes, text: str) -> None:
    """Write into an empty panel why it is empty."""
    middle: dict[str, Any] = {"transform": axes.transAxes, "ha": "center", "va": "center"}
    axes.text(0.5, 0.5, text, color=GREY, **middle)


_VALUES = {
    "model.position": {"none": "no positions", "rope": "rotary positions"},
    "model.mixer.output_gate": {"True": "with output gate", "False": "without output gate"},
    "model.mixer.scale": {"sqrt": "scores over √K", "head_dim": "scores over K"},
}
# Tables name these by the words of a configuration.
_TICKS = {
    "format": {"cot": "chain of thought", "direct": "no chain"},
    "task.monoid": {"A4xZ5": "A4×Z5"},
}
_WORDS = {
    "model.position": "{} positions", "model.mixer.block_size": "blocks of {}",
    "model.mixer.window_blocks": "window of {} blocks",
    "model.mixer.convolution": "{} convolution",
    "model.mixer.A_range": "A from {}", "recipe.learning_rate": "learning rate {}",
    "layers": "{} layers", "heads": "{} heads",
    "dim": "D = {}", "size": "n = {}", "task.size": "trained on n = {}", "recipe": "{}",
    "format": "{}", "task.order": "{}", "task.monoid": "{}",
    "recipe.steps": "{} steps", "data.train": "{} sequences",
}  # fmt: skip


def setting_label(key: str, value: object) -> str:
    """Return a setting in words: a name for tasks and models, else ``key=value``."""
    if key == "task":
        return task_label(str(value))
    if key == "model":
        return model_label(str(value))
    if value in ("", None):
        return ""
    if str(value) in _VALUES.get(key, {}):
        return _VALUES[key][str(value)]
    words = _WORDS.get(key, "{key}={value}").removesuffix("s" if value in (1, "1") else "\0")
    name = short_name(value)
    if key == "model.mixer.A_range":
        name = name.replace(" ", "\N{NO-BREAK SPACE}")
    return words.format(name, key=short_name(key.rpartition(".")[2]), value=name)


def tick_label(key: str, value: object) -> str:
    """Return what stands at a value of an axis: the setting in words, spelt out."""
    return _TICKS.get(key, {}).get(str(value)) or setting_label(key, value)


def axis_label(key: str) -> str:
    """Return what stands under an axis of this setting."""
    words = {
        "dim": "embedding dimension D",
        "size": "problem size n",
        "heads": "heads H",
        "task.monoid": "monoid",
        "recipe.learning_rate": "learning rate",
    }
    return words.get(key) or short_name(key)


def plain_log(axis: Axis) -> None:
    """Make a logarithmic axis write plain numbers, and few of them."""
    low, high = axis.get_view_interval()
    subs = (1.0,) if high > 300 * low else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
