"""Commands with a closed pipe, or with an encoding that lacks characters."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from vsphere_operators.console import SIGPIPE_EXIT_CODE, replace_unencodable

COMMANDS = {
    "doctor": ["vsphere_operators.main", "doctor", "-metrics-addr=0"],
    "doctor -json": ["vsphere_operators.main", "doctor", "-metrics-addr=0", "-json"],
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS.keys())
def test_closed_pipe_is_not_an_error(arguments: list[str]) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        env={"HOME": "/nonexistent", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout
    child.stdout.close()
    try:
        _, errors = child.communicate(timeout=30)
    finally:
        child.kill()
    assert (child.returncode, errors) == (SIGPIPE_EXIT_CODE, "")


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [("latin-1", b"?? n\xe4me?"), ("ascii", b"?? n?me?"), ("utf-8", "└─ näme…".encode())],
)
def test_unencodable_character_is_a_question_mark(encoding: str, expected: bytes) -> None:
    output = io.BytesIO()
    stream = io.TextIOWrapper(output, encoding=encoding, write_through=True)
    replace_unencodable(stream)
    stream.write("└─ näme…")
    assert output.getvalue() == expected


def test_machine_readable_output_is_utf_8() -> None:
    output = io.BytesIO()
    stream = io.TextIOWrapper(output, encoding="latin-1", write_through=True)
    replace_unencodable(stream, machine_readable=True)
    stream.write("└─ näme…")
    assert output.getvalue() == "└─ näme…".encode()
    replace_unencodable(io.StringIO())
