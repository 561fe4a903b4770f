"""Checks the English of source, messages and documentation against a list of words.

    python -m hack.check_words [PATH...]

Reads comments, strings and the names that are defined in Python and Go files, Markdown outside
code, and the whole text of YAML, TOML, templates, Makefile and Dockerfile. A name is read as its
words: `whoIsReady` and `who_is_ready` both contain "who". Prints
`file:line: "word": write suggestion` for each hit and exits with 1 if there is one. Without paths
it checks every file that git tracks.

A name on the wire, or a text that users rely on word for word, stays as it is: ALLOWED has those,
each with its reason.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

SUGGESTIONS = {
    r"told": "reported, notified or given",
    r"tells?|telling": "notify, report or show",
    r"heard|hears?|hearing": "received, or on_change",
    r"says?|said|saying": "report, log or state",
    r"words": "message or text",
    r"looks?|looked|looking": "read, check or refresh",
    r"learn(?:s|t|ed|ing)?": "apply or read",
    r"wish(?:es|ed)?": "desired state",
    r"obstacles?": "blocker",
    r"refusals?": "rejection",
    r"mend(?:s|ed|ing)?": "fix",
    r"anew": "again",
    r"by\s+(?:it|them)sel(?:f|ves)": "automatically, or alone",
    r"near\s+to\s+it": "did you mean",
    r"(?-i:[Tt]he\s+rest)": "default, or name what is left",
    r"(?-i:(?:is|are)\s+none)": "is not a, or there is no",
    r"beside": "in addition to, next to or with",
    r"leaving": "terminating",
    # In the sense of a permission; the right side and the right value are ordinary English.
    r"rights|(?:the|a|no|any)\s+right\s+(?:to|for)": "permission or privilege",
    # "hands over" and "hands to" are verbs.
    r"hands(?!\s+(?:over|to)\b)": "vm_calls, or name what acts",
    r"glow": "pending",
    # "in flight" is the term for requests without a response yet.
    r"(?<!\bin[\s-])flights?": "clone_state",
    r"grounds?(?!\s+truth)": "placement",
    r"stewards?": "reconciler",
    r"workshops?|almanacs?|crowds?": "name what the module or class holds",
    r"lest": "so that ... not",
    r"who|whom|whose|whoever": "name the actor, or use 'that' or 'of which'",
    r"nobody|somebody|anybody|everybody|someone|no\s+one": "name the actor",
}
_WORDS = re.compile(
    r"\b(?:" + "|".join(f"(?P<w{i}>{p})" for i, p in enumerate(SUGGESTIONS)) + r")\b", re.IGNORECASE
)
_REPLACEMENTS = tuple(SUGGESTIONS.values())
# Names of variables that mean nothing without their context; as a part of a name they are fine.
_VAGUE_NAMES = {"each": "the noun", "found": "the noun", "made": "the noun", "known": "the noun"}

# Phrases that stay, with the reason.
ALLOWED = {
    "REST": "the kind of API",
    "look up": "the term for a search by key",
    "look-up": "the term for a search by key",
    "looked up": "the term for a search by key",
    "looking up": "the term for a search by key",
    "looks up": "the term for a search by key",
    "kubectl auth whoami": "a command",
    "hack.check_words": "this module",
    "hack/check_words": "this module",
    "all rights reserved": "the term of law",
    '"words":': "a key of the JSON of `manager doctor`",
    "leaving:": "status.replicas[].leaving of VmGroup is on the wire",
}
ALLOWED_NAMES = {
    "leaving": "status.replicas[].leaving of VmGroup is on the wire",
    "break_long_words": "a parameter of textwrap",
}
# Strings as a whole, in files of the doctor.
_DOCTOR_STRINGS = {
    "rights": "the subject of a finding of `manager doctor`; scripts may match it",
    "words": "a key of the JSON of `manager doctor`",
}
# The simulator is written again on another branch, names and tests included: read them after
# that is merged.
_NAMES_NOT_READ = ("testenv/vcsim/",)
_NOT_READ = (
    "tests/golden/",  # generated from the templates, which are read
    "packages/kubewright/src/kubewright/builder/scaffold/templates/licenses/",  # not ours
    "packages/kubewright-api/src/",  # generated from the OpenAPI documents of Kubernetes
    # The list itself, and its examples.
    "hack/check_words.py",
    "tests/test_check_words.py",
)
_TEXT_FILES = (
    *(".yaml", ".yml", ".toml", ".tmpl", ".css", ".html", ".js"),
    *("Makefile", "Dockerfile", ".ci/run"),
)

# Code in backticks, addresses, and directives for tools.
_CODE = re.compile(r"``[^`]+``|`[^`\n]+`|\bhttps?://\S+")
_DIRECTIVE = re.compile(r"#\s*(?:noqa|type:|pragma|fmt:|!)")
_FENCE = re.compile(r"^\s*(?:[-*>]\s*)?(```+|~~~+)")
_LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.|!!!)\s")
_WORD_BOUNDARY = re.compile(r"_|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_STRING_START = re.compile(r"^([A-Za-z]*)('''|\"\"\"|'|\")")
_GO_TOKEN = re.compile(
    r"(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)|(?P<raw>`[^`]*`)|(?P<string>\"(?:\\.|[^\"\\\n])*\")"
    r"|(?P<rune>'(?:\\.|[^'\\\n])+')|(?P<name>[A-Za-z_]\w*)",
    re.DOTALL,
)


class Hit(NamedTuple):
    path: str
    line: int
    word: str
    suggestion: str

    def __str__(self) -> str:
        return f'{self.path}:{self.line}: "{self.word}": write {self.suggestion}'


class _Line(NamedTuple):
    number: int
    text: str


# Lines that are read as one text, because a phrase may continue on the next line.
_Block = list[_Line]


def find_hits(path: str, text: str) -> list[Hit]:
    """Hits in one file, by its name's ending, in the order of the lines."""
    hits = {hit for block in _read_blocks(path, text) for hit in _hits_in(path, block)}
    if path.endswith(".py"):
        names = {(line, name) for line, name in _python_names(text) if name in _VAGUE_NAMES}
        hits |= {Hit(path, line, name, _VAGUE_NAMES[name]) for line, name in names}
    return sorted(hits, key=lambda hit: hit.line)


def _hits_in(path: str, block: _Block) -> Iterator[Hit]:
    starts, text = [], ""
    for line in block:
        starts.append(len(text))
        text += line.text + "\n"
    text = _without_allowed(text)
    for match in _WORDS.finditer(text):
        line = block[bisect_right(starts, match.start()) - 1]
        index = int(str(match.lastgroup)[1:])
        yield Hit(path, line.number, " ".join(match[0].split()), _REPLACEMENTS[index])


def _read_blocks(path: str, text: str) -> Iterator[_Block]:
    if path.endswith(".py"):
        yield from _python_texts(path, text)
        yield from _name_blocks(_python_names(text))
    elif path.endswith(".md"):
        yield from _read_markdown(text)
    elif path.endswith(".go"):
        yield from _read_go(path, text)
    elif path.endswith(_TEXT_FILES):
        numbered = enumerate(text.splitlines(), 1)
        yield [_Line(number, _split_names(_CODE.sub(" ", line))) for number, line in numbered]


def _lines_of(number: int, text: str) -> _Block:
    """The lines of a text that begins on line `number`, without code."""
    without_code = _CODE.sub(lambda match: "\n" * match[0].count("\n") or " ", text)
    return [_Line(number + i, line) for i, line in enumerate(without_code.split("\n"))]


def _without_allowed(text: str) -> str:
    for phrase in ALLOWED:
        text = text.replace(phrase, " " * len(phrase))
    return text


def _split_names(text: str) -> str:
    return _WORD_BOUNDARY.sub(" ", _without_allowed(text))


def _name_blocks(names: Iterable[tuple[int, str]]) -> Iterator[_Block]:
    for number, name in names:
        if name not in ALLOWED_NAMES:
            yield [_Line(number, _split_names(name))]


def _python_texts(path: str, text: str) -> Iterator[_Block]:
    """Comments and strings; lines of a comment and adjacent strings are one text."""
    allowed = _DOCTOR_STRINGS if "doctor" in path else {}
    block: _Block = []
    previous = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        if kind in ("NL", "NEWLINE", "INDENT", "DEDENT", "FSTRING_START", "FSTRING_END"):
            continue
        is_prose = kind in ("COMMENT", "STRING", "FSTRING_MIDDLE")
        if not is_prose or _DIRECTIVE.match(token.string) or token.string.strip("'\"") in allowed:
            if block:
                yield block
            block, previous = [], token.type
            continue
        if token.type != previous and block:
            yield block
            block = []
        value = _string_text(token.string) if kind == "STRING" else token.string.lstrip("#")
        block += _lines_of(token.start[0], value)
        previous = token.type
    if block:
        yield block


def _string_text(token: str) -> str:
    """The text of a literal, without escapes and without the code of an f-string."""
    prefix = _STRING_START.match(token)
    kinds = prefix[1].lower() if prefix else ""
    if "f" in kinds:
        # Python 3.11 has one token for an f-string; line ends stay for the number of the line.
        token = re.sub(r"\{[^{}]*\}", lambda match: "\n" * match[0].count("\n") or "x", token)
    return re.sub(r"\\[a-zA-Z]", "  ", token[len(kinds) :].strip("'\""))


def _python_names(text: str) -> Iterator[tuple[int, str]]:
    """The names that a module defines: classes, functions, parameters, variables, attributes."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str(name)):
                yield node.lineno, name


def _read_go(path: str, text: str) -> Iterator[_Block]:
    """Comments, strings and names. Lines of comments that follow each other are one text."""
    names_read = not path.startswith(_NAMES_NOT_READ)
    block: _Block = []
    for match in _GO_TOKEN.finditer(text):
        number = text.count("\n", 0, match.start()) + 1
        is_comment = match.lastgroup in ("line", "block")
        if block and not (is_comment and number <= block[-1].number + 1):
            yield block
            block = []
        if is_comment and not match[0].startswith("//go:"):
            block += _lines_of(number, match[0].strip("/*"))
        elif match.lastgroup in ("string", "raw") and (names_read or not path.endswith("_test.go")):
            yield _lines_of(number, re.sub(r"\\[a-z]", "  ", match[0].strip("`")))
        elif match.lastgroup == "name" and names_read:
            yield from _name_blocks([(number, match[0])])
    if block:
        yield block


def _read_markdown(text: str) -> Iterator[_Block]:
    """Paragraphs outside fenced and indented code, without the targets of links."""
    fence, in_list, after_blank, in_code = "", False, True, False
    block: _Block = []
    for number, line in enumerate(text.splitlines(), 1):
        opened = _FENCE.match(line)
        if fence:
            fence = "" if line.strip() == fence else fence
            continue
        if opened:
            fence = opened[1]
            continue
        if not line.strip():
            yield block
            block, after_blank = [], True
            continue
        if _LIST_ITEM.match(line):
            in_list = True
        elif not line.startswith(" "):
            in_list = False
        # Four spaces are code only after an empty line, and not inside a list.
        indented = line.startswith("    ")
        in_code = indented and not in_list and (after_blank or in_code)
        after_blank = False
        if not in_code:
            prose = re.sub(r"\]\([^)]*\)", "]", _CODE.sub(" ", line))
            block.append(_Line(number, prose))
    yield block


def _tracked_files() -> list[str]:
    output = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    endings = (".py", ".md", ".go", *_TEXT_FILES)
    return [
        path
        for path in output.splitlines()
        if path.endswith(endings) and not path.startswith(_NOT_READ)
    ]


def main(arguments: list[str]) -> int:
    hits = [
        hit
        for path in arguments or _tracked_files()
        for hit in find_hits(path, (ROOT / path).read_text(encoding="utf-8"))
    ]
    for hit in hits:
        print(hit)
    if hits:
        print(
            f"{len(hits)} words that a reader has to learn first. If the name is on the wire, or "
            "users rely on the text word for word, add it to ALLOWED in hack/check_words.py."
        )
    return 1 if hits else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
