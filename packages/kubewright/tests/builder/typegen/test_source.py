from __future__ import annotations

import ast
import subprocess
import sys
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubewright.builder.typegen.docstrings import first_sentence, format_docstring
from kubewright.builder.typegen.source import (
    LINE_LENGTH,
    call,
    format_lines,
    keyword,
    literal,
    quote,
    subscript,
    with_prefix,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def format_with_ruff(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--line-length", str(LINE_LENGTH), "-"]
    return subprocess.run(
        [*command, "--isolated"], input=source, capture_output=True, text=True, check=True
    ).stdout


@given(st.text())
def test_a_quoted_text_is_that_text(text: str) -> None:
    assert ast.literal_eval(quote(text)) == text


@given(JSON)
def test_a_literal_has_the_value(value: Any) -> None:
    assert ast.literal_eval("\n".join(format_lines(literal(value)))) == value


@given(st.text())
def test_a_docstring_is_always_a_string(text: str) -> None:
    lines = format_docstring(first_sentence(text), 4)
    for node in ast.parse("\n".join(["class A:", *lines, "    pass"])).body[0].body[:-1]:  # type: ignore[attr-defined]
        assert isinstance(node.value, ast.Constant)
    assert all(line.isprintable() for line in lines)


def test_lines_are_those_of_ruff() -> None:
    long = "a" * 60
    expressions = [
        call("f", quote('a"b'), quote("it's"), quote("\\ \n"), quote("'\"'")),
        call("f", keyword("key", quote(long)), keyword("other", literal({"a": [1, None, True]}))),
        with_prefix(
            "x: ", subscript("list", subscript("Annotated", "str", call("g", quote(long))))
        ),
        with_prefix("x = ", literal({long: [long, {long: long}], "b": {}, "c": []})),
        subscript("Annotated", f"dict[str, {long}]", call("ListType", '"map"', quote(long))),
    ]
    source = "".join(line + "\n" for item in expressions for line in format_lines(item))
    assert format_with_ruff(source) == source


def test_docstrings_are_those_of_ruff() -> None:
    texts = [
        *("One.", 'Ends with a "quote"', "Back\\slash", "a " * 90, "b" * 200),
        *(f"{'c' * length}." for length in range(80, 100)),
    ]
    lines = [line for text in texts for line in ("class A:", *format_docstring(text, 4), "", "")]
    source = "\n".join(lines[:-2]) + "\n"
    assert format_with_ruff(source) == source


def test_first_sentence() -> None:
    cases = {
        "One sentence. Another.": "One sentence.",
        "No period": "No period.",
        "See e.g. RFC 1 for it. More.": "See e.g. RFC 1 for it.",
        "A\nwrapped text.\n\nParagraph": "A wrapped text.",
        "A list: * a * b": "A list:",
        "Version 1.2 is one. More info: https://example.com": "Version 1.2 is one.",
        "Ends in a link https://example.com/a": "Ends in a link.",
        "Hidden\u202e\u200btext\x00.": "Hiddentext.",
        "": "",
    }
    assert {text: first_sentence(text) for text in cases} == cases
    assert first_sentence(None) == ""
    assert len(first_sentence("word " * 200)) <= 300
