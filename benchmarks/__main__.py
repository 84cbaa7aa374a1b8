"""python -m benchmarks NAME: measure speed and print it as ratios taken in one run."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import cli
from errors import UserError


def main() -> None:
    """Run ``benchmarks/NAME.py``'s ``main(argv)``."""
    folder = Path(__file__).parent
    names = sorted(p.stem for p in folder.glob("*.py") if not p.stem.startswith("_"))
    if len(sys.argv) < 2 or sys.argv[1] not in names:
        raise UserError(f"usage: python -m benchmarks NAME [options]; NAME: {', '.join(names)}")
    importlib.import_module(f"benchmarks.{sys.argv[1]}").main(sys.argv[2:])


if __name__ == "__main__":
    cli.main(main)
