"""python -m benchmarks NAME [key=value ...]: measure, print, write a record."""

import importlib
import sys
from pathlib import Path

from common import UserError, did_you_mean, exit_on_user_error, read_options

NAMES = sorted(
    path.stem for path in Path(__file__).parent.glob("[a-z]*.py") if path.stem != "timing"
)
USAGE = f"python -m benchmarks NAME [key=value ...]; NAME is one of {', '.join(NAMES)}"


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print(USAGE)
        return
    if name not in NAMES:
        raise UserError(f"no benchmark {name!r}{did_you_mean(name, NAMES)}; {USAGE}")
    function = importlib.import_module(f"benchmarks.{name}").main
    function(**read_options(function, sys.argv[2:]))


if __name__ == "__main__":
    exit_on_user_error(main)()
