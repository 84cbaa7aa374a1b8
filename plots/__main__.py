"""``python -m plots experiment=NAME``: redraw an experiment's figures and tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from common import UserError, did_you_mean
from plots.data import load_experiment
from plots.redraw import FIGURES, SCORE, TABLES, redraw

USAGE = f"""usage: python -m plots experiment=NAME [KEY=VALUE ...] [--config-dir=DIR]

Redraws the figures and tables of an experiment from RESULTS_DIR/NAME/results.csv into
RESULTS_DIR/NAME/figures, and RESULTS_DIR/NAME/README.md beside them. From any folder, where the
package is installed or PYTHONPATH names the repository.

  results_dir=results   where the experiment's folder lies; outputs, where results has none
  format=png,csv        of figures png, pdf, svg; of tables csv, md, tex
  figures=a,b           some of {", ".join([*FIGURES, TABLES, SCORE])},
                        or the dotted path of your own module with a function draw(table, **options)
  models=a,b            only these models
  exclude=a,b           not these models
  width=6.75            inches: 3.25 for a column of two
  font_size=7           points
  --config-dir=DIR      holds experiment/NAME.yaml outside this repository
"""
DEFAULTS = {
    "experiment": "", "results_dir": "", "format": "png,csv", "figures": "", "models": "",
    "exclude": "", "width": "6.75", "font_size": "7", "--config-dir": "",
}  # fmt: skip
FORMATS = ("png", "pdf", "svg", "csv", "md", "tex")


def options_of(words: Sequence[str]) -> dict[str, str]:
    """Return the options that the words of a command line set, over the defaults."""
    options = dict(DEFAULTS)
    for word in words:
        key, equals, value = word.partition("=")
        if key not in options or not equals:
            near = did_you_mean(key, options)
            raise UserError(f"unknown option {word}; there are {', '.join(options)}{near}")
        options[key] = value
    if not options["experiment"]:
        raise UserError("experiment=NAME is missing; python -m plots --help lists all options")
    return options


def main(words: Sequence[str]) -> None:
    """Draw, and print each file that was written."""
    options = options_of(words)
    lists = {key: _names(options[key]) for key in ("format", "figures", "models", "exclude")}
    for name in lists["format"]:
        if name not in FORMATS:
            raise UserError(f"format={name}: must be one of {', '.join(FORMATS)}")
    folders = [options["results_dir"]] if options["results_dir"] else ["results", "outputs"]
    tables = [Path(folder) / options["experiment"] / "results.csv" for folder in folders]
    folder = next(filter(Path.exists, tables), tables[-1]).parent
    experiment = load_experiment(options["experiment"], options["--config-dir"] or None, folder)
    paths = redraw(
        experiment,
        folder,
        formats=lists["format"],
        figures=lists["figures"],
        models=lists["models"],
        exclude=lists["exclude"],
        width=_positive("width", options["width"]),
        font_size=_positive("font_size", options["font_size"]),
    )
    for path in paths:
        print(path)


def _names(value: str) -> list[str]:
    return [name.strip() for name in value.strip("[]").split(",") if name.strip()]


def _positive(key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < 100:
        raise UserError(f"{key}={value}: must be a number above 0")
    return number


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(USAGE, end="")
        sys.exit(0)
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(print(f"error: {error}", file=sys.stderr) or 2)
