from __future__ import annotations

import re

import pytest

from hack.check_words import find_hits

# Every word that must not appear, with some of its forms.
WORDS = re.findall(
    r"\w+",
    """
    told tell tells telling heard hear hears hearing say says said saying words look looks looked
    looking learn learns learned learnt learning wish wishes obstacle obstacles refusal refusals
    mend mended anew beside leaving rights hands glow flight flights Ground ground Steward steward
    workshop almanac crowd lest who whom whose whoever nobody somebody anybody everybody someone
    """,
)
PHRASES = ["by itself", "by themselves", "near to it", "the rest", "is none", "are none", "no one"]
PHRASES += ["the right to"]

# A text with the word on its last line but one, by what it is.
TEXTS = {
    "comment in Python": ("a.py", "x = 1\n# Then {} comes.\n"),
    "docstring": ("a.py", '"""First.\n\nThen {} comes.\n"""\n'),
    "string": ("a.py", 'x = 1\ny = "then {} comes"\n'),
    "string of one word": ("a.py", 'x = 1\ny = "{}"\n'),
    "f-string": ("a.py", 'x = 1\ny = f"{{x}} then {} comes {{x}}"\n'),
    "regular expression": ("a.py", 'x = 1\ny = r"\\b{}\\b (?:x)"\n'),
    "continued string": ("a.py", 'x = (\n    "first "\n    "then {} comes"\n)\n'),
    "string after a line end": ("a.py", 'x = 1\ny = "first\\n{} comes"\n'),
    "line comment in Go": ("a.go", "package a\n\n// Then {} comes.\n"),
    "block comment in Go": ("a.go", "package a\n\n/* First.\nThen {} comes. */\n"),
    "string in Go": ("a.go", 'package a\n\nvar x = "then {} comes"\n'),
    "raw string in Go": ("a.go", "package a\n\nvar x = `then {} comes`\n"),
    "paragraph": ("a.md", "# Title\n\nThen {} comes.\n"),
    "list item": ("a.md", "- First.\n\n    Then {} comes.\n"),
    "continued list item": ("a.md", "- First,\n    then {} comes.\n"),
    "changelog": ("CHANGELOG.md", "- First.\n- Then {} comes.\n"),
    "reference": ("docs/reference/flags.md", "| a | b |\n| x | Then {} comes. |\n"),
    "YAML": ("a.yaml", "a: 1\n# Then {} comes.\n"),
    "YAML value": ("mkdocs.yml", "a: 1\nb: then {} comes\n"),
    "template": ("a.py.tmpl", "first\n# Then {} comes.\n"),
    "TOML": ("pyproject.toml", 'a = 1\nb = "then {} comes"\n'),
    "Makefile": ("Makefile", "check: ## Then {} comes\n"),
    "Dockerfile": ("Dockerfile", "FROM x\n# Then {} comes\n"),
}
NAMES = {
    "class": ("a.py", "x = 1\nclass An{title}Box: ...\n"),
    "function": ("a.py", "x = 1\ndef get_{lower}_now() -> None: ...\n"),
    "parameter": ("a.py", "x = 1\ndef f(the_{lower}_x: int) -> None: ...\n"),
    "variable": ("a.py", "x = 1\n_{upper}_COUNT = 1\n"),
    "attribute": ("a.py", "x = 1\nx.is_{lower}_x = 1\n"),
    "import": ("a.py", "x = 1\nimport os as {lower}_os\n"),
    "name in Go": ("a.go", "package a\nfunc get{title}Box() {{}}\n"),
    "key in YAML": ("a.yaml", "a: 1\nget{title}Box: 1\n"),
}


@pytest.mark.parametrize("place", TEXTS)
@pytest.mark.parametrize("word", [*WORDS, *PHRASES])
def test_a_listed_word_is_reported_with_its_line(place: str, word: str) -> None:
    path, template = TEXTS[place]
    text = template.format(word)
    line = next(n for n, line in enumerate(text.splitlines(), 1) if word in line)
    hits = find_hits(path, text)
    assert [(hit.line, hit.word) for hit in hits] == [(line, word)]
    assert str(hits[0]).startswith(f'{path}:{line}: "{word}": write ')


@pytest.mark.parametrize("place", NAMES)
@pytest.mark.parametrize("word", WORDS)
def test_a_listed_word_is_reported_in_names(place: str, word: str) -> None:
    path, template = NAMES[place]
    text = template.format(title=word.title(), lower=word.lower(), upper=word.upper())
    assert [(hit.line, hit.word.lower()) for hit in find_hits(path, text)] == [(2, word.lower())]


@pytest.mark.parametrize("name", ["each", "found", "made", "known"])
def test_a_vague_name_is_reported_only_as_a_whole(name: str) -> None:
    assert [hit.word for hit in find_hits("a.py", f"for {name} in x:\n    pass\n")] == [name]
    assert find_hits("a.py", f"{name}_hosts = 1  # It is {name}.\n") == []


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("a.py", "# It is solved by\n# itself then.\nx = 1\n", 1),
        ("a.py", 'x = (\n    "a"\n    "it is solved by "\n    "itself then"\n)\n', 3),
        ("a.go", "// It is solved by\n// itself then.\n", 1),
        ("a.md", "It is solved by\nitself then.\n", 1),
    ],
)
def test_a_phrase_may_continue_on_the_next_line(path: str, text: str, line: int) -> None:
    assert [(hit.line, hit.word) for hit in find_hits(path, text)] == [(line, "by itself")]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", "x = told.y  # noqa: told\n"),
        ("a.md", "`who` is a command.\n\n```\nwho am i\n```\n\n    nobody\n"),
        ("a.md", "[link](https://example.com/who)\n"),
        ("a.py", "# The REST API; look up the name.\n"),
        ("a.py", "# The right side; requests in flight; it hands over; in the background.\n"),
        ("a.py", 'x = f"{told} and {words[0]}"\n'),
        ("a.py", "class Replica:\n    leaving: bool\n"),
        ("a.yaml", "leaving:\n  type: boolean\n"),
        ("Makefile", "check:\n\tpython -m hack.check_words\n"),
    ],
)
def test_code_wire_names_and_phrases_of_the_field_are_not_reported(path: str, text: str) -> None:
    assert find_hits(path, text) == []
