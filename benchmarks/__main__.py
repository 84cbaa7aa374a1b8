"""python -m benchmarks NAME [key=value ...]: measure, print, write benchmarks/records/NAME.json."""

from __future__ import annotations

if __name__ == "__main__":
    import quiet_interrupts  # noqa: F401

import importlib
import sys
from pathlib import Path

import cli

from common import UserError, did_you_mean


def main() -> None:
    """Run ``benchmarks/NAME.py``'s ``main(words)``."""
    names = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem[0] != "_")
    usage = f"python -m benchmarks NAME [key=value ...]; NAME is one of {', '.join(names)}"
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(usage)
        return
    if len(sys.argv) < 2:
        raise UserError(f"NAME is missing: {usage}")
    if sys.argv[1] not in names:
        raise UserError(
            f"no benchmark named {sys.argv[1]!r}{did_you_mean(sys.argv[1], names)}; {usage}"
        )
    importlib.import_module(f"benchmarks.{sys.argv[1]}").main(sys.argv[2:])


if __name__ == "__main__":
    cli.main(main)
