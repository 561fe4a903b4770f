"""Output of the command-line tools: closed pipes, encodings, escapes, color and wrapping."""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, TextIO

import msgspec

# Control characters, marks that change the direction of text, lone surrogates and line separators.
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# It is of the category Cf too, but only joins emoji and letters.
_ZERO_WIDTH_JOINER = "\u200d"

# A shell reports 128 + 13 for a process that SIGPIPE ended.
SIGPIPE_EXIT_CODE = 141

Style = Literal["", "good", "bad", "busy", "alert", "head"]
_COLOR_CODES: dict[Style, str] = {
    "good": "32",
    "bad": "31",
    "busy": "33",
    "alert": "1;31",
    "head": "1",
}


def discard_stdout() -> int:
    """Drop the remaining output of a closed pipe; returns the exit code."""
    # Python flushes stdout again at exit and would print a traceback for the closed pipe.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
    return SIGPIPE_EXIT_CODE


def replace_unencodable(stream: TextIO, *, machine_readable: bool = False) -> None:
    """Print "?" for characters that the stream's encoding lacks; JSON and YAML are always UTF-8."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8" if machine_readable else None, errors="replace")


def terminal_width(stream: TextIO) -> int:
    """Columns of the terminal, 0 if the stream is not a terminal."""
    return shutil.get_terminal_size().columns if stream.isatty() else 0


def supports_color(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether to print color; NO_COLOR turns it off (https://no-color.org)."""
    return stream.isatty() and "NO_COLOR" not in environ


def escape_control(text: str) -> str:
    r"""Text that cannot control the terminal: `\x1b` for an escape, `\u202e` for a bidi override.

    Names in vCenter and messages of other programs may contain any character.
    """
    if text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode()
        if char != _ZERO_WIDTH_JOINER and unicodedata.category(char) in _ESCAPED_CATEGORIES
        else char
        for char in text
    )


def escape_lines(text: str) -> str:
    """Like escape_control, for a text that may have several lines."""
    return "\n".join(map(escape_control, text.split("\n")))


def apply_color(text: str, style: Style, *, color: bool) -> str:
    return f"\x1b[{_COLOR_CODES[style]}m{text}\x1b[0m" if color and style else text


def format_age(length: timedelta) -> str:
    """As kubectl prints ages: 59s, 3m, 2h, 5d."""
    seconds = int(length.total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def format_document(value: Any, output: str) -> str:
    """The value as "json", else as YAML."""
    # Times and enums become text.
    plain = msgspec.to_builtins(value, enc_hook=str)
    if output == "json":
        return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
    # Imported here: the manager imports this module, and writes no YAML.
    import yaml

    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip()


def wrap_text(
    text: str, width: int, *, indent: str = "", break_long_words: bool = False
) -> list[str]:
    """Lines of at most `width` columns, at least one; a width of 0 keeps the text on one line.

    A word longer than a line stays whole by default, so that names can be copied.
    """
    if not width:
        return [text]
    return textwrap.wrap(
        text,
        width,
        subsequent_indent=indent,
        break_long_words=break_long_words,
        break_on_hyphens=False,
    ) or [""]
