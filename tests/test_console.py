"""Commands with a closed pipe, or with an encoding that lacks characters."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vsphere_operators.console import SIGPIPE_EXIT_CODE, escape_control, replace_unencodable

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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("München 機房 🧊👩‍💻", "München 機房 🧊👩‍💻"),
        ("a\x1b[31mred\x07", r"a\x1b[31mred\x07"),
        ("one\ntwo\r\tthree", r"one\ntwo\r\tthree"),
        ("\x9b2J", r"\x9b2J"),
        ("evil\u202etxt.exe\u2066\u2069\u200f", r"evil\u202etxt.exe\u2066\u2069\u200f"),
        ("a\u2028b\ufeff\ud800", r"a\u2028b\ufeff\ud800"),
    ],
)
def test_control_and_direction_characters_are_escaped(text: str, shown: str) -> None:
    assert escape_control(text) == shown


@given(st.text())
def test_escaped_text_has_no_character_that_controls_a_terminal(text: str) -> None:
    shown = escape_control(text)
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert not {unicodedata.bidirectional(char) for char in shown} & {
        "LRE",
        "RLE",
        "LRO",
        "RLO",
        "PDF",
        "LRI",
        "RLI",
        "FSI",
        "PDI",
    }
