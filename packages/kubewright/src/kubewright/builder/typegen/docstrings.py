"""Descriptions of OpenAPI as docstrings: their first sentence, wrapped."""

from __future__ import annotations

import re
import textwrap

from .source import LINE_LENGTH

_MAX_LENGTH = 300
_ABBREVIATIONS = r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\betc\.)(?<!\bvs\.)(?<!\bcf\.)"
_SENTENCE_END = re.compile(rf"(?<=[.!?]){_ABBREVIATIONS}\s+(?=[A-Z0-9`\"'(\[<*-])")
_PARAGRAPH_END = re.compile(r"\n\s*\n|\n\s*(?=[-#] )|\s(?=\* )")
_TRAILING_LINK = re.compile(r"\s*\(?https?://\S+$")


def first_sentence(description: object) -> str:
    """The first sentence on one line; "" if there is no text."""
    if not isinstance(description, str):
        return ""
    paragraph = _PARAGRAPH_END.split(description.strip(), maxsplit=1)[0]
    text = " ".join(paragraph.split())
    # Control characters, and characters that change the direction of text, mislead a reader.
    text = "".join(character for character in text if character.isprintable())
    sentence = _TRAILING_LINK.sub("", _SENTENCE_END.split(text, maxsplit=1)[0])
    if sentence[-1:].isalnum() or sentence.endswith(")"):
        sentence += "."
    return textwrap.shorten(sentence, _MAX_LENGTH, placeholder="...")


def format_docstring(text: str, indent: int) -> list[str]:
    """The lines of a docstring; none for an empty text."""
    # A backslash or quotes must not end the literal, and a quote at the end must not be joined.
    text = text.replace("\\", "\\\\").replace('"""', "'''").strip()
    if not text:
        return []
    if text.endswith('"'):
        text += "."
    prefix = " " * indent
    width = LINE_LENGTH - indent
    if len(text) + len('""""""') <= width:
        return [f'{prefix}"""{text}"""']
    # Not so wide that the text alone would fit: ruff joins such a docstring to one line.
    width = min(width, len(text) + len('"""') - 1)
    lines = textwrap.wrap(f'"""{text}', width, break_long_words=False, break_on_hyphens=False)
    if len(lines) == 1:
        return [f'{prefix}{lines[0]}"""']
    return [*(prefix + line for line in lines), f'{prefix}"""']
