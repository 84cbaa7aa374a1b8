"""Run ``python -m tasks`` inside the test's process."""

import os
import signal
import sys

from tasks import __main__ as program


def main(words: list[str]) -> int:
    """Return the exit status of ``python -m tasks WORDS``."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    told, given = os.environ.get("HYDRA_FULL_ERROR"), sys.argv
    sys.argv = ["tasks", *words]
    try:
        program.main(words)
    except SystemExit as left:
        return int(left.code or 0)
    finally:
        sys.argv = given
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.environ.pop("HYDRA_FULL_ERROR")
        if told is not None:
            os.environ["HYDRA_FULL_ERROR"] = told
    return 0
