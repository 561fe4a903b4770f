"""The end of make is the end of the demo: a make that is killed tells its children nothing, and they would go on for ever."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def exit_with_parent() -> None:
    """Get SIGTERM when our parent ends, however it does; on Linux only, where the kernel has a signal for that."""
    parent = os.getppid()
    if (prctl := getattr(ctypes.CDLL(None), "prctl", None)) is None:
        return
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
