"""Output that nobody takes, or not as it is: no error, and no reason for a traceback.

A pipe's reader may have seen enough, as `| head` has; and a terminal that is not UTF-8 has no signs for some of what is to be shown.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

SIGPIPE_EXIT_CODE = 141
"""The exit code, as the shell gives it to whoever is ended by SIGPIPE."""


def discard_stdout() -> int:
    """Throw away what is still to be written: Python would try again at its end, and complain. Returns the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return SIGPIPE_EXIT_CODE


def replace_unencodable(stream: TextIO, *, machine_readable: bool = False) -> None:
    """Let a question mark stand for what the stream's encoding does not have; a program that reads gets UTF-8, as JSON and YAML are."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8" if machine_readable else None, errors="replace")
