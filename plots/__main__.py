"""``python -m plots experiment=NAME``: redraw an experiment's figures from its results table."""

from __future__ import annotations

if __name__ == "__main__":
    import quiet_interrupts  # noqa: F401

import sys
from collections.abc import Sequence

import cli
from common import UserError
from plots import FIGURES, SPECIAL
from plots.redraw import redraw

USAGE = """usage: python -m plots experiment=NAME [results_dir=results] [figures=[heatmap,...]]
                       [--config-dir=DIR]

Redraws the figures and tables of an experiment from results_dir/NAME/results.csv into
results_dir/NAME/figures, and results_dir/NAME/report.html beside it. Prints each file it writes.
figures: those that the experiment names; where it names none:
{usual}, report
drawn only where they are named:
{special}
or the dotted path of your own module.
DIR holds experiments outside the repository, as for sweep.py.
"""


def _arguments(words: Sequence[str]) -> tuple[str, str, list[str] | None, str | None]:
    defaults = {"experiment": "", "results_dir": "results", "figures": "", "--config-dir": ""}
    values = cli.key_values(words, defaults, USAGE)
    if not values["experiment"]:
        raise UserError(f"experiment=NAME is missing; {USAGE.splitlines()[0]}")
    names = [part.strip() for part in values["figures"].strip("[]").split(",")]
    figures = [name for name in names if name] or None
    return values["experiment"], values["results_dir"], figures, values["--config-dir"] or None


def main() -> None:
    """Entry point: draw, print each file written."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(USAGE.format(usual=", ".join(FIGURES), special=", ".join(SPECIAL)), end="")
        return
    for path in redraw(*_arguments(sys.argv[1:])):
        print(path)


if __name__ == "__main__":
    cli.main(main)
