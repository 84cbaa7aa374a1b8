"""Imported first by the server that forks workers: Ctrl-C is the launcher's to answer.

The server itself begins to ignore it only once its imports, seconds of them, are through.
"""

import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)
