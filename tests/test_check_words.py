from __future__ import annotations

import pytest

from hack.check_words import find_hits


@pytest.mark.parametrize(
    ("path", "text", "line", "word"),
    [
        ("a.py", "x = 1\n# Somebody else wrote.\n", 2, "Somebody"),
        ("a.py", 'def f() -> None:\n    """What is told."""\n', 2, "told"),
        ("a.py", 'm = f"the group {name} is made anew"\n', 1, "anew"),
        ("a.md", "# Title\n\nWho reads this?\n", 3, "Who"),
        ("a.go", "package a\n\n// It tells the caller.\n", 3, "tells"),
    ],
)
def test_a_listed_word_is_reported_with_its_line(
    path: str, text: str, line: int, word: str
) -> None:
    hits = list(find_hits(path, text))
    assert [(hit.line, hit.word) for hit in hits] == [(line, word)]
    assert str(hits[0]).startswith(f'{path}:{line}: "{word}": write ')


def test_the_line_inside_a_long_docstring_is_reported() -> None:
    text = '"""First line.\n\nThird line, by itself.\n"""\n'
    assert [hit.line for hit in find_hits("a.py", text)] == [3]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", "told = 1  # noqa: told\n"),
        ("a.py", 'pattern = r"\\bwho\\b is"\n'),
        ("a.md", "`who` is a command.\n\n```\nwho am i\n```\n\n    nobody\n"),
        ("a.md", "[link](https://example.com/who)\n"),
        ("a.py", "# The REST API; look up the name.\n"),
        ("a.yaml", "nobody: 1\n"),
    ],
)
def test_code_and_phrases_of_the_field_are_not_reported(path: str, text: str) -> None:
    assert list(find_hits(path, text)) == []
