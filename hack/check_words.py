"""Checks the English of source, messages and documentation against a list of words.

    python -m hack.check_words [PATH...]

Reads docstrings, comments and string literals of Python files, comments of Go files, and
Markdown outside code. Prints `file:line: "word": write "suggestion"` for each hit and exits
with 1 if there is one. Without paths it checks every file that git tracks.

A text that users rely on word for word stays as it is: ALLOWED has those texts.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

SUGGESTIONS = {
    r"told": "reported, notified or given",
    r"tells?|telling": "notify, report or show",
    r"heard|hears?|hearing": "received",
    r"says?|said|saying": "report, log or state",
    r"words": "message or text",
    r"looks?|looked|looking": "read, check or refresh",
    r"learns?|learnt|learned": "apply or read",
    r"wish(?:es|ed)?": "desired state",
    r"obstacles?": "blocker",
    r"refusals?": "rejection",
    r"mend(?:s|ed|ing)?": "fix",
    r"anew": "again",
    r"by (?:it|them)sel(?:f|ves)": "automatically, or alone",
    r"near to it": "did you mean",
    r"(?-i:[Tt]he rest)": "default, or name what is left",
    r"(?-i:(?:is|are) none)": "is not a, or there is no",
    r"beside": "in addition to, next to or with",
    r"leaving": "terminating",
    r"lest": "so that ... not",
    r"who|whom|whose|whoever": "name the actor, or use 'that' or 'of which'",
    r"nobody|somebody|anybody|everybody|someone|no one": "name the actor",
}
_WORDS = re.compile(
    r"\b(?:" + "|".join(f"(?P<w{i}>{p})" for i, p in enumerate(SUGGESTIONS)) + r")\b", re.IGNORECASE
)
_REPLACEMENTS = tuple(SUGGESTIONS.values())

# Phrases of the field, and texts that are not ours to change.
ALLOWED = (
    "REST",
    "look up",
    "look-up",
    "looked up",
    "looking up",
    "looks up",
    "kubectl auth whoami",
)

# Code in backticks, addresses, and directives for tools.
_CODE = re.compile(r"``[^`]+``|`[^`\n]+`|\bhttps?://\S+")
_DIRECTIVE = re.compile(r"#\s*(?:noqa|type:|pragma|fmt:|!)")
_FENCE = re.compile(r"^\s*(?:[-*>]\s*)?(```+|~~~+)")
_NOT_PROSE = ("LICENSE", "CHANGELOG.md")
_SKIPPED_FOLDERS = ("tests/golden/", "docs/reference/")


class Hit(NamedTuple):
    path: str
    line: int
    word: str
    suggestion: str

    def __str__(self) -> str:
        return f'{self.path}:{self.line}: "{self.word}": write {self.suggestion}'


def find_hits(path: str, text: str) -> Iterator[Hit]:
    """Hits in one file, by its name's ending."""
    for line, prose in _read_prose(path, text):
        cleaned = _CODE.sub(" ", prose)
        for phrase in ALLOWED:
            cleaned = cleaned.replace(phrase, " " * len(phrase))
        for match in _WORDS.finditer(cleaned):
            index = int(str(match.lastgroup)[1:])
            at = line + cleaned.count("\n", 0, match.start())
            yield Hit(path, at, match[0], _REPLACEMENTS[index])


def _read_prose(path: str, text: str) -> Iterator[tuple[int, str]]:
    if path.endswith(".py"):
        yield from _read_python(text)
    elif path.endswith(".md"):
        yield from _read_markdown(text)
    elif path.endswith(".go"):
        yield from _read_go(text)


def _read_python(text: str) -> Iterator[tuple[int, str]]:
    """Comments and strings, docstrings included; the code inside f-strings is not prose."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not _DIRECTIVE.match(token.string):
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        # A regular expression is code.
        if " " in node.value and not re.search(r"\\[bsdw]|\(\?", node.value):
            yield node.lineno, node.value


def _read_go(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        match = re.search(r"(?:^|\s)//(?!go:)(.*)", line)
        if match:
            yield number, match[1]


def _read_markdown(text: str) -> Iterator[tuple[int, str]]:
    """Lines outside fenced blocks, HTML comments and the targets of links."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        opened = _FENCE.match(line)
        if fence:
            fence = "" if line.strip() == fence else fence
        elif opened:
            fence = opened[1]
        elif not line.startswith(("    ", "<!--")):
            yield number, re.sub(r"\]\([^)]*\)", "]", line)


def _tracked_files() -> list[str]:
    output = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.go"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [
        path
        for path in output.splitlines()
        if not path.startswith(_SKIPPED_FOLDERS) and not path.endswith(_NOT_PROSE)
    ]


def main(arguments: list[str]) -> int:
    hits = [
        hit
        for path in arguments or _tracked_files()
        if path not in ("hack/check_words.py", "tests/test_check_words.py")
        for hit in find_hits(path, (ROOT / path).read_text(encoding="utf-8"))
    ]
    for hit in hits:
        print(hit)
    if hits:
        print(
            f"{len(hits)} words that a reader has to learn first. "
            "If users rely on the text word for word, add it to ALLOWED in hack/check_words.py."
        )
    return 1 if hits else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
