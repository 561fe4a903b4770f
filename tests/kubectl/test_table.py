"""Properties that hold for every table."""

from __future__ import annotations

import json

import yaml
from hypothesis import given
from hypothesis import strategies as st

from vsphere_operators.console import format_document
from vsphere_operators.kubectl.table import (
    MIN_COLUMN_WIDTH,
    Cell,
    Table,
    _fit_widths,
    fit_text,
    render_field,
    render_table,
    short_host,
    short_hosts,
)
from vsphere_operators.kubectl.tree import Branch, render_tree

TEXT = st.text(st.characters(categories=("L", "N", "P"), include_characters=" "), max_size=40)
ROWS = st.integers(1, 5).flatmap(lambda n: st.lists(st.tuples(*[TEXT] * n), min_size=1, max_size=6))


@given(ROWS, st.integers(30, 200))
def test_every_line_fits_and_columns_are_aligned(rows: list[tuple[str, ...]], width: int) -> None:
    count = len(rows[0])
    table = Table(
        columns=tuple(f"C{n}" for n in range(count)),
        rows=tuple(tuple(map(Cell, row)) for row in rows),
    )
    lines = table.lines(width)
    assert all(
        len(line.rstrip()) <= width for line in render_table(table, width=width).splitlines()
    )
    for column in range(count):
        assert len({len(line[column].text) for line in lines}) == 1


@given(ROWS)
def test_without_a_width_nothing_is_cut(rows: list[tuple[str, ...]]) -> None:
    table = Table(columns=("C",) * len(rows[0]), rows=tuple(tuple(map(Cell, row)) for row in rows))
    cells = [[cell.text.rstrip() for cell in line] for line in table.lines()[1:]]
    assert cells == [[text.rstrip() for text in row] for row in rows]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.integers(0, 200))
def test_widest_column_is_cut_first(widths: list[int], width: int) -> None:
    fitted = _fit_widths(widths, width)
    assert all(0 <= new <= old for new, old in zip(fitted, widths, strict=True))
    cut_widths = [new for new, old in zip(fitted, widths, strict=True) if new < old]
    if cut_widths:
        assert min(cut_widths) >= min(MIN_COLUMN_WIDTH, max(widths))
        assert max(fitted) - min(cut_widths) <= 1 or min(cut_widths) == MIN_COLUMN_WIDTH


def test_name_loses_its_middle_and_sentence_its_end() -> None:
    assert fit_text("tkg-cluster-1-workers-5v298", 15) == "tkg-clu…s-5v298"
    assert fit_text("no template of that name", 12) == "no template…"
    assert fit_text("short", 8) == "short   "


def test_color_does_not_move_columns() -> None:
    table = Table(columns=("A", "B"), rows=((Cell("x", "good"), Cell("y", "bad")),))
    assert render_table(table) == "A  B\nx  y"
    assert (
        render_table(table, color=True)
        == "\x1b[1mA\x1b[0m  \x1b[1mB\x1b[0m\n\x1b[32mx\x1b[0m  \x1b[31my\x1b[0m"
    )


def test_fields_wrap_under_their_value_and_hosts_lose_their_domain() -> None:
    assert (
        render_field("Message", "one two three", width=21)
        == "Message:    one two\n            three"
    )
    assert render_field("Message", "one two three", width=0) == "Message:    one two three"
    assert [
        short_host(name) for name in ("esxi-1.example.com", "10.0.0.1", "fe80::1", "bare", "")
    ] == [
        "esxi-1",
        "10.0.0.1",
        "fe80::1",
        "bare",
        "",
    ]


@given(ROWS, st.integers(60, 200))
def test_sentences_in_the_last_column_are_complete_at_any_width(
    rows: list[tuple[str, ...]], width: int
) -> None:
    table = Table(
        columns=("C",) * len(rows[0]),
        rows=tuple(tuple(map(Cell, row)) for row in rows),
        wrap_last_column=True,
    )
    lines = table.lines(width)[1:]
    assert " ".join(" ".join(line[-1].text for line in lines).split()) == " ".join(
        " ".join(row[-1] for row in rows).split()
    )
    for line in render_table(table, width=width).splitlines():
        assert len(line) <= width or max(len(word) for row in rows for word in row[-1].split()) > 24


def test_sentence_wraps_below_its_beginning() -> None:
    table = Table(
        columns=("NODE", "WHY"),
        rows=((Cell("n"), Cell("one two three four five six")), (Cell("m"), Cell(""))),
        wrap_last_column=True,
    )
    assert render_table(table, width=30) == "NODE  WHY\nn     one two three four five\n      six\nm"
    assert render_table(table) == "NODE  WHY\nn     one two three four five six\nm"


@given(
    st.lists(st.text("ab-.", min_size=1, max_size=40), min_size=1, max_size=6, unique=True),
    st.integers(60, 100),
)
def test_rows_with_different_names_stay_different(names: list[str], width: int) -> None:
    table = Table(columns=("A", "B"), rows=tuple((Cell(name), Cell("x" * 60)) for name in names))
    assert len({line[0].text for line in table.lines(width)[1:]}) == len(names)
    assert all(len(line) <= width for line in render_table(table, width=width).splitlines())


def test_names_next_to_sentences_stay_different() -> None:
    names = ["a" * 12 + middle + "z" * 12 for middle in ("east", "west")]
    table = Table(
        columns=("A", "B", "C"),
        rows=tuple((Cell(name), Cell("b" * 40), Cell("why not " * 9)) for name in names),
        wrap_last_column=True,
    )
    text = render_table(table, width=64)
    assert len({line.split()[0] for line in text.splitlines() if line.startswith("aaa")}) == 2
    assert all(len(line) <= 64 for line in text.splitlines())


def test_hosts_keep_their_domain_if_they_would_become_equal() -> None:
    assert short_hosts(["a.x.com", "b.x.com"]) == {"a.x.com": "a", "b.x.com": "b"}
    assert short_hosts(["a.x.com", "a.y.com", "b.x.com"]) == {
        "a.x.com": "a.x.com",
        "a.y.com": "a.y.com",
        "b.x.com": "b",
    }


HOSTILE_NAME = "vm\x1b[2J\n\u202eevil\x9b\u2069"
ESCAPED_NAME = r"vm\x1b[2J\n\u202eevil\x9b\u2069"


def test_names_cannot_control_the_terminal() -> None:
    table = Table(columns=("VM", "WHY"), rows=((Cell(HOSTILE_NAME), Cell(HOSTILE_NAME)),))
    assert render_table(table).splitlines()[1].split() == [ESCAPED_NAME, ESCAPED_NAME]
    wrapped = Table(columns=table.columns, rows=table.rows, wrap_last_column=True)
    for width in (0, 40, 200):
        for text in (render_table(table, width=width), render_table(wrapped, width=width)):
            assert text.replace("\n", "").isprintable()
    assert render_field("Host", HOSTILE_NAME, width=80) == f"Host:       {ESCAPED_NAME}"


def test_tree_escapes_names_and_its_json_has_them_unchanged() -> None:
    branches = [Branch(kind="VM", name=HOSTILE_NAME, note=HOSTILE_NAME)]
    assert list(render_tree(branches)) == [f"VM {ESCAPED_NAME}  ({ESCAPED_NAME})"]
    assert all(line.isprintable() for line in render_tree(branches, width=20))
    assert json.loads(format_document(branches, "json"))[0]["name"] == HOSTILE_NAME
    assert yaml.safe_load(format_document(branches, "yaml"))[0]["name"] == HOSTILE_NAME
