"""Import this first in a program: Ctrl-C while the rest is imported ends it without a traceback.

`cli.main` then gives Ctrl-C back to Python.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
