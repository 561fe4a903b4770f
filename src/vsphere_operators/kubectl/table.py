"""Tables that fit a width: the widest column is cut first, and a cut text shows an ellipsis.

Rows with different first columns stay different when that column is cut. Sentences in the last
column are not cut but wrapped. Control characters are escaped. Pure functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from ..console import Style, apply_color, escape_control, wrap_text

COLUMN_GAP = 2
# Three characters and an ellipsis still show what a column is about.
MIN_COLUMN_WIDTH = 4
# Narrower than this a sentence has about one word per line.
_MIN_WRAPPED_WIDTH = 24
# The longest label is "Placement:".
_LABEL_WIDTH = 12


class Cell(Struct, frozen=True):
    text: str
    style: Style = ""


RowT = TypeVar("RowT")
# How the cells of a row are built, by the title of their column.
Columns = Mapping[str, Callable[[RowT], str | Cell]]


class Table(Struct, frozen=True, kw_only=True):
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...] = ()
    wrap_last_column: bool = False

    def lines(self, width: int = 0) -> list[list[Cell]]:
        """Titles and rows, each cell padded to its column; a width of 0 cuts nothing."""
        rows = [
            tuple(Cell(title, "head") for title in self.columns),
            *(
                tuple(Cell(escape_control(cell.text), cell.style) for cell in row)
                for row in self.rows
            ),
        ]
        natural = [max(len(row[index].text) for row in rows) for index in range(len(self.columns))]
        names = [row[0].text for row in rows[1:]]
        if self.wrap_last_column and width:
            widths = _fit_with_wrapped_column(names, natural, width)
            return [line for row in rows for line in _wrap_row(row, widths)]
        widths = _fit_with_distinct_names(names, natural, width)
        return [_fit_row(row, widths) for row in rows]


def _fit_widths(widths: Sequence[int], width: int) -> list[int]:
    """Cuts the widest column until all fit, but none below MIN_COLUMN_WIDTH."""
    fitted = list(widths)
    excess = sum(fitted) + COLUMN_GAP * (len(fitted) - 1) - width if width else 0
    while excess > 0 and max(fitted) > MIN_COLUMN_WIDTH:
        fitted[fitted.index(max(fitted))] -= 1
        excess -= 1
    return fitted


def _fit_with_distinct_names(names: Sequence[str], widths: Sequence[int], width: int) -> list[int]:
    """Like _fit_widths, but keeps the first column wide enough to distinguish the names."""
    fitted = _fit_widths(widths, width)
    distinct = set(names)
    for first in range(fitted[0], widths[0] + 1):
        if len({fit_text(name, first) for name in distinct}) == len(distinct):
            wider = (
                [first, *_fit_widths(widths[1:], max(width - first - COLUMN_GAP, 1))]
                if first > fitted[0]
                else fitted
            )
            return wider if sum(wider) + COLUMN_GAP * (len(wider) - 1) <= width else fitted
    return fitted


def _fit_with_wrapped_column(names: Sequence[str], widths: Sequence[int], width: int) -> list[int]:
    """Narrows the last column first, down to a width at which sentences are still readable."""
    *front, last = widths
    fitted = (
        _fit_with_distinct_names(
            names, front, max(width - COLUMN_GAP - min(last, _MIN_WRAPPED_WIDTH), 1)
        )
        if front
        else []
    )
    return [
        *fitted,
        max(min(last, width - sum(fitted) - COLUMN_GAP * len(fitted)), MIN_COLUMN_WIDTH),
    ]


def _fit_row(row: Sequence[Cell], widths: Sequence[int]) -> list[Cell]:
    return [
        Cell(fit_text(cell.text, size), cell.style) for cell, size in zip(row, widths, strict=True)
    ]


def _wrap_row(row: Sequence[Cell], widths: Sequence[int]) -> Iterator[list[Cell]]:
    """As many lines as the last cell needs."""
    *front, last = row
    for number, text in enumerate(wrap_text(last.text, widths[-1])):
        yield [
            *_fit_row([Cell("")] * len(front) if number else front, widths[:-1]),
            Cell(text.ljust(widths[-1]), last.style),
        ]


def fit_text(text: str, width: int) -> str:
    """Cuts or pads to the width. A sentence loses its end, a name its middle: names differ at
    their ends.
    """
    if len(text) <= width:
        return text.ljust(width)
    if " " in text or width < 2 * MIN_COLUMN_WIDTH:
        return f"{text[: width - 1]}…"
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"


def format_number(number: int | None) -> str:
    return "-" if number is None else str(number)


def short_host(name: str) -> str:
    """A host name without its domain; an IP address stays as it is."""
    first = name.partition(".")[0]
    return name if first.isdigit() or ":" in name else first


def short_hosts(names: Iterable[str]) -> dict[str, str]:
    """Each host without its domain, unless two of them would become equal."""
    short_names = {name: short_host(name) for name in names}
    count = Counter(short_names.values())
    return {name: short if count[short] == 1 else name for name, short in short_names.items()}


def build_table(
    rows: Iterable[RowT], columns: Columns[RowT], *, wrap_last_column: bool = False
) -> Table:
    """A cell without a style may be given as its text."""
    cells = (tuple(build(row) for build in columns.values()) for row in rows)
    styled = (tuple(Cell(cell) if isinstance(cell, str) else cell for cell in row) for row in cells)
    return Table(columns=tuple(columns), rows=tuple(styled), wrap_last_column=wrap_last_column)


def render_field(
    name: str, value: str, *, width: int, style: Style = "", color: bool = False
) -> str:
    """`Name:  value`, wrapped under the value."""
    text = escape_control(value)
    lines = wrap_text(text, max(width - _LABEL_WIDTH, _LABEL_WIDTH) if width else 0)
    return f"{name + ':':<{_LABEL_WIDTH}}" + f"\n{' ' * _LABEL_WIDTH}".join(
        apply_color(line, style, color=color) for line in lines
    )


def render_table(table: Table, *, width: int = 0, color: bool = False) -> str:
    lines = []
    for *front, last in table.lines(width):
        # Padding inside a color code would survive the rstrip() of the line.
        cells = [*front, Cell(last.text.rstrip(), last.style)]
        texts = (apply_color(cell.text, cell.style, color=color) for cell in cells)
        lines.append((" " * COLUMN_GAP).join(texts).rstrip())
    return "\n".join(lines)
