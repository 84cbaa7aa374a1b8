"""Redraw an experiment's figures and tables from results_dir/NAME/results.csv.

python -m plots experiment=NAME [KEY=VALUE ...]

Figures go to results_dir/NAME/figures, README.md to results_dir/NAME; with models= or exclude=,
figures go to figures/some_models.

results_dir=DIR       the experiment's parent folder: outputs, or results if outputs has none
format=png            figures: png, pdf, svg; tables: csv, md, tex; e.g. png,csv
figures=a,b           the experiment's own by default; or your module with draw(table, **options)
models=a,b            only these models
exclude=a,b           not these models
width=6.75            inches: 3.25 for a column of two
font_size=7           points
mplstyle=FILE         a style sheet of matplotlib, e.g. for another font
config_dir=conf       holds experiment/NAME.yaml outside this repository
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from common import UserError, exit_on_user_error, read_options
from experiments.grid import load_experiment
from plots.redraw import redraw


def draw(
    experiment: str,
    results_dir: Path | None = None,
    format: tuple[Literal["png", "pdf", "svg", "csv", "md", "tex"], ...] = ("png",),
    figures: tuple[str, ...] = (),
    models: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    width: Annotated[float, Field(ge=2, lt=100)] = 6.75,
    font_size: Annotated[float, Field(gt=0, lt=100)] = 7,
    mplstyle: Path | None = None,
    config_dir: Path | None = None,
) -> None:
    """Draw, and print each file written."""
    if mplstyle and not mplstyle.is_file():
        raise UserError(f"mplstyle={mplstyle}: no such file")
    folders = [results_dir] if results_dir else [Path("outputs"), Path("results")]
    tables = [folder / experiment / "results.csv" for folder in folders]
    folder = next(filter(Path.exists, tables), tables[-1]).parent
    own = config_dir or (Path("conf") if Path("conf").is_dir() else None)
    found = load_experiment(experiment, own, folder)
    if not found.grid and experiment != "manual":
        print(f"no {experiment}.yaml, so the default figures; config_dir=DIR finds your own",
              file=sys.stderr)  # fmt: skip
    for path in redraw(found, folder, format, figures, models, exclude, width, font_size, mplstyle):
        print(path)


def main(words: Sequence[str]) -> None:
    if {"-h", "--help"} & set(words):
        print(__doc__, end="")
        return
    joined = re.sub("^--config-dir[=\n]", "config_dir=", "\n".join(words), flags=re.MULTILINE)
    draw(**read_options(draw, joined.splitlines()))


if __name__ == "__main__":
    exit_on_user_error(main)(sys.argv[1:])
