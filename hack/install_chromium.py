"""Installs Chromium from the distribution's packages, if it is missing and this user may.

`make testenv` runs it. Without Chromium all other tests still run, so that a failure here is a
message and not an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from ui.browser import ADVICE, find_chromium

_LEFT_OUT = "Without it, make test leaves out the tests of the page (tests/ui)."


def main() -> None:
    if find_chromium() is not None:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(f"Chromium was not found on PATH. {ADVICE}. {_LEFT_OUT}")
        return
    print("installing chromium with apt-get: about a minute")
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
    # The first attempt fails on a machine that has never read the list of packages.
    for command in (install, ["apt-get", "update"], install):
        result = subprocess.run(command, env=environ, capture_output=True, text=True)
        if find_chromium() is not None:
            return
    reason = result.stderr.strip().splitlines()[-1:] or ["no message"]
    print(f"apt-get could not install chromium: {reason[0]}. {_LEFT_OUT}")


if __name__ == "__main__":
    main()
