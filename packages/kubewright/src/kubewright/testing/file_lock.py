"""Lets one process at a time download or build into a folder of the cache."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from .progress import Progress


@contextlib.contextmanager
def hold_file_lock(path: Path, progress: Progress) -> Iterator[None]:
    """Hold a lock file. A second process waits; the caller then checks what is left to do."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.print_line("waiting for another process that downloads or builds the same")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
