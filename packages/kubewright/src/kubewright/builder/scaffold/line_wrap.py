"""Splits lines of the templates that a long name makes too long, in the places where ruff does.

It knows only the statements of the templates: an import, a call, a signature, a list. What it
cannot split stays as it is, and `make format` is suggested.
"""

from __future__ import annotations

import re

_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_INDENT = "    "


def wrap_long_lines(text: str, length: int) -> str:
    lines = text.split("\n")
    wrapped: list[str] = []
    for index, line in enumerate(lines):
        is_code = not line.lstrip().startswith("#") and '"""' not in line
        if len(line) <= length or not is_code:
            wrapped.append(line)
        elif match := re.fullmatch(r"(from \S+ import )([^()]+)", line):
            wrapped += [f"{match[1]}(", *_one_per_line(match[2], _INDENT), ")"]
        elif wrapped and wrapped[-1][-1:] in _BRACKETS and _closes(lines[index + 1]):
            wrapped += _one_per_line(line.strip(), _indent_of(line))
        else:
            wrapped += _split_last_brackets(line, length)
    return "\n".join(wrapped)


def _split_last_brackets(line: str, length: int) -> list[str]:
    """The line with what is inside of its last brackets on lines of its own."""
    pairs = [pair for pair in _find_pairs(line) if pair[1] > pair[0] + 1]
    if not pairs:
        return [line]
    start, end = max(pairs, key=lambda pair: pair[1])
    indent = _indent_of(line)
    # An operator after the brackets: ruff puts the whole value in parentheses.
    if re.match(r". [^-]", line[end:]):
        target, _, value = line.partition(" = ")
        return [f"{target} = (", f"{indent}{_INDENT}{value}", f"{indent})"] if value else [line]
    content = line[start + 1 : end]
    inner = [f"{indent}{_INDENT}{content}"]
    is_list = line[start] == "[" and line[start - 1] == " "
    is_single_parameter = re.match(r"\s*(async )?def ", line) and "," not in content
    if len(inner[0]) > length or is_list or is_single_parameter:
        inner = _one_per_line(content, indent + _INDENT)
    return [line[: start + 1], *inner, indent + line[end:]]


def _one_per_line(content: str, indent: str) -> list[str]:
    """The items between top-level commas, each with a comma."""
    nested = _find_pairs(content)
    commas = [
        index
        for index, letter in enumerate(content)
        if letter == "," and not any(start < index < end for start, end in nested)
    ]
    starts, ends = [0, *(index + 1 for index in commas)], [*commas, len(content)]
    items = (content[start:end].strip() for start, end in zip(starts, ends, strict=True))
    return [f"{indent}{item}," for item in items if item]


def _find_pairs(text: str) -> list[tuple[int, int]]:
    """Where brackets open and close, outside of strings."""
    pairs, opened, quote = [], list[int](), ""
    for index, letter in enumerate(text):
        if quote or letter in "\"'":
            quote = "" if letter == quote else quote or letter
        elif letter in _BRACKETS:
            opened.append(index)
        elif opened and letter == _BRACKETS[text[opened[-1]]]:
            pairs.append((opened.pop(), index))
    return pairs


def _closes(line: str) -> bool:
    return line.lstrip()[:1] in _BRACKETS.values()


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
