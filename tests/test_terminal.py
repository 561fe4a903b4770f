"""Commands whose output nobody reads to its end, or cannot show."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from vsphere_operators.terminal import SIGPIPE_EXIT_CODE, replace_unencodable

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
    assert (child.returncode, complaints) == (SIGPIPE_EXIT_CODE, "")


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("latin-1", b"?? n\xe4me?"), ("ascii", b"?? n?me?"), ("utf-8", "└─ näme…".encode())],
)
def test_what_cannot_be_shown_is_a_question_mark(encoding: str, shown: bytes) -> None:
    taken = io.BytesIO()
    stream = io.TextIOWrapper(taken, encoding=encoding, write_through=True)
    replace_unencodable(stream)
    stream.write("└─ näme…")
    assert taken.getvalue() == shown


def test_programs_read_utf_8() -> None:
    taken = io.BytesIO()
    stream = io.TextIOWrapper(taken, encoding="latin-1", write_through=True)
    replace_unencodable(stream, machine_readable=True)
    stream.write("└─ näme…")
    assert taken.getvalue() == "└─ näme…".encode()
    replace_unencodable(io.StringIO())
