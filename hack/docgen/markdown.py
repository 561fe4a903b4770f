"""Headings, links and fenced blocks of a Markdown page, as GitHub and the site read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(
    r"^(?:<!-- (?:not run: (?P<reason>[^>]+?)|run in order: (?P<order>[^>]+?)) -->\n)?"
    r"```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_HEADING = re.compile(r"^(#{1,6}) +(.+?) *$", re.MULTILINE)
# The text of a link may be wrapped, but not contain an empty line.
_LINK = re.compile(r"!?\[(?:[^\]\n]|\n(?!\n))*\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
_LINK_DEFINITION = re.compile(r"^\[[^\]\n]+\]: +<?([^\s>]+)>?", re.MULTILINE)
_CODE = re.compile(r"(`+)[^\n]*?\1")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    skip_reason is the reason why tests do not run it, and order_reason why only the test that runs
    all how-tos in order does.
    """

    language: str
    argument: str
    text: str
    line: int
    skip_reason: str = ""
    order_reason: str = ""


def fenced_blocks(page: str) -> list[Block]:
    blocks = []
    for match in _FENCE.finditer(page):
        language, _, argument = match["info"].strip().partition(" ")
        line = page.count("\n", 0, match.start()) + 1
        reasons = (match["reason"] or "", match["order"] or "")
        blocks.append(Block(language, argument, match["text"], line, *reasons))
    return blocks


def _without_code(page: str) -> str:
    """The page without code blocks and comments; line numbers stay the same."""
    for pattern in (_FENCE, _COMMENT):
        page = pattern.sub(lambda match: "\n" * match[0].count("\n"), page)
    return page


def slug(heading: str, separator: str = "-") -> str:
    """The anchor of a heading by GitHub's rule.

    mkdocs.yml names this function, and Markdown calls it with the separator.
    """
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).strip().replace(" ", separator)


def anchors(page: str) -> set[str]:
    """Every anchor of a page; a second heading with the same text ends with -1."""
    counts: dict[str, int] = {}
    names: set[str] = set()
    for _, heading in _HEADING.findall(_without_code(page)):
        name = slug(heading)
        names.add(f"{name}-{counts[name]}" if name in counts else name)
        counts[name] = counts.get(name, 0) + 1
    return names


def links(page: str) -> Iterator[tuple[int, str]]:
    """Every link, picture and definition of a link outside of code, with its line."""
    text = _CODE.sub("", _without_code(page))
    for pattern in (_LINK, _LINK_DEFINITION):
        for match in pattern.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, match[1]
