"""Rows of text in columns that fit a width: the widest column gives way first, and what is cut shows that it is. Pure.

Two rows that differ in their first column still do when it is cut. Sentences in the last column are not cut, but go on below.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

GAP = 2
FIELD = 12
NARROWEST = 4
NARROWEST_SENTENCES = 24
Tone = Literal["", "good", "bad", "busy", "head"]
COLOURS: dict[Tone, str] = {"good": "32", "bad": "31", "busy": "33", "head": "1"}


class Cell(Struct, frozen=True):
    """A text, and how it is to be taken."""

    text: str
    tone: Tone = ""


class Table(Struct, frozen=True, kw_only=True):
    """Columns with their titles, and rows of as many cells."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...] = ()
    wraps: bool = False
    """Whether the last column has sentences, which go on below where they are too long."""

    def lines(self, width: int = 0) -> list[list[Cell]]:
        """The titles and all rows, each cell cut and filled to its column; a width of 0 cuts nothing."""
        every = [tuple(Cell(title, "head") for title in self.columns), *self.rows]
        natural = [max(len(row[index].text) for row in every) for index in range(len(self.columns))]
        names = [row[0].text for row in self.rows]
        if self.wraps and width:
            widths = leaving_room(names, natural, width)
            return [line for row in every for line in folded(row, widths)]
        widths = telling_apart(names, natural, width)
        return [filled(row, widths) for row in every]


def fitting(widths: Sequence[int], width: int) -> list[int]:
    """Widths that fit: always the widest gives way, and none below a few characters."""
    made = list(widths)
    excess = sum(made) + GAP * (len(made) - 1) - width if width else 0
    while excess > 0 and max(made) > NARROWEST:
        made[made.index(max(made))] -= 1
        excess -= 1
    return made


def telling_apart(names: Sequence[str], widths: Sequence[int], width: int) -> list[int]:
    """Widths that fit, the first of them so wide that different names do not become one; the others give way for it, if they can."""
    made = fitting(widths, width)
    different = set(names)
    for first in range(made[0], widths[0] + 1):
        if len({cut(name, first) for name in different}) == len(different):
            wider = [first, *fitting(widths[1:], max(width - first - GAP, 1))] if first > made[0] else made
            return wider if sum(wider) + GAP * (len(wider) - 1) <= width else made
    return made


def leaving_room(names: Sequence[str], widths: Sequence[int], width: int) -> list[int]:
    """Widths that fit, of which the last gives way first, down to what sentences need."""
    *front, last = widths
    made = telling_apart(names, front, max(width - GAP - min(last, NARROWEST_SENTENCES), 1)) if front else []
    return [*made, max(min(last, width - sum(made) - GAP * len(made)), NARROWEST)]


def filled(row: Sequence[Cell], widths: Sequence[int]) -> list[Cell]:
    """A row in one line."""
    return [Cell(cut(cell.text, size), cell.tone) for cell, size in zip(row, widths, strict=True)]


def folded(row: Sequence[Cell], widths: Sequence[int]) -> Iterator[list[Cell]]:
    """A row in as many lines as its last cell takes; a word that is longer than a line stays whole."""
    *front, last = row
    texts = textwrap.wrap(last.text, widths[-1], break_long_words=False, break_on_hyphens=False) or [""]
    for number, text in enumerate(texts):
        yield [*filled([Cell("")] * len(front) if number else front, widths[:-1]), Cell(text.ljust(widths[-1]), last.tone)]


def cut(text: str, width: int) -> str:
    """Exactly so wide: a sentence loses its end, a name its middle, since names differ at their ends."""
    if len(text) <= width:
        return text.ljust(width)
    if " " in text or width < 2 * NARROWEST:
        return f"{text[: width - 1]}…"
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"


def short_host(name: str) -> str:
    """A host without its domain, where columns are scarce; an address stays as it is."""
    first = name.partition(".")[0]
    return name if first.isdigit() or ":" in name else first


def short_hosts(names: Iterable[str]) -> dict[str, str]:
    """Each host without its domain, where no two of them become the same."""
    made = {name: short_host(name) for name in names}
    count = Counter(made.values())
    return {name: short if count[short] == 1 else name for name, short in made.items()}


def field(name: str, value: str, *, width: int, tone: Tone = "", colour: bool = False) -> str:
    """`Name:  value`, with lines that are too long going on under the value."""
    head = f"{name + ':':<{FIELD}}"
    lines = textwrap.wrap(value, max(width - FIELD, FIELD), break_long_words=False, break_on_hyphens=False) if width else [value]
    return head + f"\n{' ' * FIELD}".join(painted(line, tone, colour=colour) for line in lines or [""])


def drawn(table: Table, *, width: int = 0, colour: bool = False) -> str:
    """The table as text."""
    return "\n".join(joined(line, colour=colour) for line in table.lines(width))


def joined(cells: Sequence[Cell], *, colour: bool) -> str:
    """One line, without blanks at its end."""
    *front, last = cells
    return (" " * GAP).join(painted(cell.text, cell.tone, colour=colour) for cell in [*front, Cell(last.text.rstrip(), last.tone)]).rstrip()


def painted(text: str, tone: Tone, *, colour: bool) -> str:
    """In colour, where there is any."""
    return f"\x1b[{COLOURS[tone]}m{text}\x1b[0m" if colour and tone else text
