"""Rows of text in columns that fit a width: the widest column gives way first, and what is cut shows that it is. Pure.

Two rows that differ in their first column still do when it is cut. Sentences in the last column are not cut, but go on below.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

COLUMN_GAP = 2
_LABEL_WIDTH = 12
MIN_COLUMN_WIDTH = 4
_MIN_WRAPPED_WIDTH = 24
Style = Literal["", "good", "bad", "busy", "head"]
ANSI_CODES: dict[Style, str] = {"good": "32", "bad": "31", "busy": "33", "head": "1"}


class Cell(Struct, frozen=True):
    """A text, and how it is to be taken."""

    text: str
    style: Style = ""


class Table(Struct, frozen=True, kw_only=True):
    """Columns with their titles, and rows of as many cells."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...] = ()
    wrap_last_column: bool = False
    """Whether the last column has sentences, which go on below where they are too long."""

    def lines(self, width: int = 0) -> list[list[Cell]]:
        """The titles and all rows, each cell cut and filled to its column; a width of 0 cuts nothing."""
        every = [tuple(Cell(title, "head") for title in self.columns), *self.rows]
        natural = [max(len(row[index].text) for row in every) for index in range(len(self.columns))]
        names = [row[0].text for row in self.rows]
        if self.wrap_last_column and width:
            widths = _fit_with_wrapped_column(names, natural, width)
            return [line for row in every for line in _wrap_row(row, widths)]
        widths = _fit_with_distinct_names(names, natural, width)
        return [_fit_row(row, widths) for row in every]


def fit_widths(widths: Sequence[int], width: int) -> list[int]:
    """Widths that fit: always the widest gives way, and none below a few characters."""
    made = list(widths)
    excess = sum(made) + COLUMN_GAP * (len(made) - 1) - width if width else 0
    while excess > 0 and max(made) > MIN_COLUMN_WIDTH:
        made[made.index(max(made))] -= 1
        excess -= 1
    return made


def _fit_with_distinct_names(names: Sequence[str], widths: Sequence[int], width: int) -> list[int]:
    """Widths that fit, the first of them so wide that different names do not become one; the others give way for it, if they can."""
    made = fit_widths(widths, width)
    different = set(names)
    for first in range(made[0], widths[0] + 1):
        if len({fit_text(name, first) for name in different}) == len(different):
            wider = (
                [first, *fit_widths(widths[1:], max(width - first - COLUMN_GAP, 1))]
                if first > made[0]
                else made
            )
            return wider if sum(wider) + COLUMN_GAP * (len(wider) - 1) <= width else made
    return made


def _fit_with_wrapped_column(names: Sequence[str], widths: Sequence[int], width: int) -> list[int]:
    """Widths that fit, of which the last gives way first, down to what sentences need."""
    *front, last = widths
    made = (
        _fit_with_distinct_names(
            names, front, max(width - COLUMN_GAP - min(last, _MIN_WRAPPED_WIDTH), 1)
        )
        if front
        else []
    )
    return [*made, max(min(last, width - sum(made) - COLUMN_GAP * len(made)), MIN_COLUMN_WIDTH)]


def _fit_row(row: Sequence[Cell], widths: Sequence[int]) -> list[Cell]:
    """A row in one line."""
    return [
        Cell(fit_text(cell.text, size), cell.style) for cell, size in zip(row, widths, strict=True)
    ]


def _wrap_row(row: Sequence[Cell], widths: Sequence[int]) -> Iterator[list[Cell]]:
    """A row in as many lines as its last cell takes; a word that is longer than a line stays whole."""
    *front, last = row
    texts = textwrap.wrap(
        last.text, widths[-1], break_long_words=False, break_on_hyphens=False
    ) or [""]
    for number, text in enumerate(texts):
        yield [
            *_fit_row([Cell("")] * len(front) if number else front, widths[:-1]),
            Cell(text.ljust(widths[-1]), last.style),
        ]


def fit_text(text: str, width: int) -> str:
    """Exactly so wide: a sentence loses its end, a name its middle, since names differ at their ends."""
    if len(text) <= width:
        return text.ljust(width)
    if " " in text or width < 2 * MIN_COLUMN_WIDTH:
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


def render_field(
    name: str, value: str, *, width: int, style: Style = "", color: bool = False
) -> str:
    """`Name:  value`, with lines that are too long going on under the value."""
    head = f"{name + ':':<{_LABEL_WIDTH}}"
    lines = (
        textwrap.wrap(
            value,
            max(width - _LABEL_WIDTH, _LABEL_WIDTH),
            break_long_words=False,
            break_on_hyphens=False,
        )
        if width
        else [value]
    )
    return head + f"\n{' ' * _LABEL_WIDTH}".join(
        apply_color(line, style, color=color) for line in lines or [""]
    )


def render_table(table: Table, *, width: int = 0, color: bool = False) -> str:
    """The table as text."""
    return "\n".join(_join_cells(line, color=color) for line in table.lines(width))


def _join_cells(cells: Sequence[Cell], *, color: bool) -> str:
    """One line, without blanks at its end."""
    *front, last = cells
    return (
        (" " * COLUMN_GAP)
        .join(
            apply_color(cell.text, cell.style, color=color)
            for cell in [*front, Cell(last.text.rstrip(), last.style)]
        )
        .rstrip()
    )


def apply_color(text: str, style: Style, *, color: bool) -> str:
    """In colour, where there is any."""
    return f"\x1b[{ANSI_CODES[style]}m{text}\x1b[0m" if color and style else text
