"""Output into a pipe whose reader has seen enough, as `| head` does: that is no error, and no reason for a traceback."""

from __future__ import annotations

import os
import sys

CLOSED = 141
"""The exit code, as the shell gives it to whoever is ended by SIGPIPE."""


def let_go() -> int:
    """Throw away what is still to be written: Python would try again at its end, and complain. Returns the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return CLOSED
