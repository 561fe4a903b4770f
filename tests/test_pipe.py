"""Commands whose output nobody reads to its end."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from vsphere_operators.pipe import CLOSED

COMMANDS = {
    "doctor": ["vsphere_operators.main", "doctor", "-metrics-addr=0"],
    "doctor, all at once": ["vsphere_operators.main", "doctor", "-metrics-addr=0", "-json"],
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_reader_that_has_seen_enough_is_no_error(words: list[str]) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", *words],
        env={"HOME": "/nonexistent", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout
    child.stdout.close()
    try:
        _, complaints = child.communicate(timeout=30)
    finally:
        child.kill()
    assert (child.returncode, complaints) == (CLOSED, "")
