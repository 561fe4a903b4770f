"""Headings, links and fenced blocks of a Markdown page, as GitHub and our site read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^>]+?) -->\n)?```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
HEADING = re.compile(r"^(#{1,6}) +(.+?) *$", re.MULTILINE)
LINK = re.compile(r"!?\[[^\]\n]*\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
CODE = re.compile(r"(`+)[^\n]*?\1")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block, and why it is not run if it says so."""

    language: str
    argument: str
    text: str
    line: int
    skip_reason: str = ""


def fenced_blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [
        parse_block(found, page.count("\n", 0, found.start()) + 1) for found in FENCE.finditer(page)
    ]


def parse_block(found: re.Match[str], line: int) -> Block:
    """What a fence holds."""
    language, _, word = found["info"].strip().partition(" ")
    return Block(language, word, found["text"], line, found["reason"] or "")


def without_code(page: str) -> str:
    """The page without what is shown as code or is a comment, with as many lines."""
    for pattern in (FENCE, COMMENT):
        page = pattern.sub(lambda found: "\n" * found[0].count("\n"), page)
    return page


def slug(heading: str, separator: str = "-") -> str:
    """The anchor of a heading, by GitHub's rule; mkdocs.yml names this function, and Markdown calls it with a separator."""
    words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", words).strip().replace(" ", separator)


def anchors(page: str) -> set[str]:
    """Every anchor of a page; the second heading of the same words ends with -1."""
    found = dict[str, int]()
    made = set[str]()
    for _, heading in HEADING.findall(without_code(page)):
        name = slug(heading)
        made.add(f"{name}-{found[name]}" if name in found else name)
        found[name] = found.get(name, 0) + 1
    return made


def links(page: str) -> Iterator[tuple[int, str]]:
    """Every link and picture with its line; code is not looked into."""
    for number, line in enumerate(without_code(page).split("\n"), 1):
        for target in LINK.findall(CODE.sub("", line)):
            yield number, target
