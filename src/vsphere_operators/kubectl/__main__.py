"""The program `kubectl-vsphere`, which kubectl runs for `kubectl vsphere`."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    # The import takes up to a second. Ctrl-C in this time ends the process without a traceback.
    previous = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .command import main

    signal.signal(signal.SIGINT, previous)
    return main()


if __name__ == "__main__":
    sys.exit(main())
