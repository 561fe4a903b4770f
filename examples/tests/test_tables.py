"""The tables of the READMEs list every example, with its lines of code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hack.count_code_lines import count_code_lines

EXAMPLES = Path(__file__).parents[1]
# A link to a file, and the number in the next cell.
ROW = re.compile(r"\[\w+\]\((\w+\.py)\) \| (\d+) \|")


@pytest.mark.parametrize("folder", [EXAMPLES, EXAMPLES / "from_kopf"], ids=lambda path: path.name)
def test_table_has_the_lines_of_every_example(folder: Path) -> None:
    listed = {name: int(lines) for name, lines in ROW.findall((folder / "README.md").read_text())}
    assert listed == {
        file.name: count_code_lines(file.read_text())
        for file in folder.glob("*.py")
        if file.name != "example_kind.py"
    }


def test_sums_of_the_lines_are_right() -> None:
    page = (EXAMPLES / "from_kopf/README.md").read_text()
    rows = re.findall(r"^\| \d\d-[\w-]+ \| (\d+) \| [^|]+ \| (\d+) \|", page, re.MULTILINE)
    there, here = (sum(map(int, column)) for column in zip(*rows, strict=True))
    assert f"| all | {there} | | {here} | |" in page


def test_blank_lines_comments_and_docstrings_are_not_counted() -> None:
    source = (
        '"""Doc\n\nstring."""\n\n'
        "import os  # a comment\n\n\n"
        "# another\n"
        "def f(\n    x: int,\n) -> str:\n"
        '    """One."""\n'
        '    text = """two\n\nlines"""\n'
        "    return text\n"
    )
    assert count_code_lines(source) == 8
    assert count_code_lines(source + "# Marks for the e2e tests\nX = 1\n") == 8
