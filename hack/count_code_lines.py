"""Counts the lines of code of Python files: without blank lines, comments and docstrings.

    python -m hack.count_code_lines FILE...

The tables of examples/ compare files of two projects that are counted in this way. What follows a
comment `# Marks for the e2e tests` is not counted: examples of kopf end with constants for tests.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_TEST_MARKS = "# Marks for the e2e tests"


def count_code_lines(source: str) -> int:
    source = source.partition(_TEST_MARKS)[0]
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - _docstring_lines(source))


def _docstring_lines(source: str) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        match node.body:
            case [ast.Expr(value=ast.Constant(value=str())) as docstring, *_]:
                lines.update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return lines


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{count_code_lines(Path(name).read_text()):5} {name}")
