"""The page of make targets, from their `##` comments."""

from __future__ import annotations

import re

from . import ROOT
from .page import code, page, table

_SECTION_PATTERN = re.compile(r"^##@ (.+)$", re.MULTILINE)
_TARGET_PATTERN = re.compile(r"^([a-z-]+):.*?## (.+)$", re.MULTILINE)
_VARIABLE_PATTERN = re.compile(r"^([A-Z_]+) \?= ?(.*)$", re.MULTILINE)
_INTRODUCTION = """
Each target does the setup that it needs: on a fresh clone `make test` is enough. `make help` prints
the same list.
"""
_VARIABLES_TEXT = """
Set them after the target: `make test TESTS=tests/settings/test_flags.py ARGS=-x`.
"""


def render() -> str:
    makefile = (ROOT / "Makefile").read_text()
    # The text before the first section has no targets.
    _, *parts = _SECTION_PATTERN.split(makefile)
    sections = []
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        targets = _TARGET_PATTERN.findall(text)
        rows = [(code(f"make {name}"), description) for name, description in targets]
        sections += [f"## {title}", table(("target", "description"), rows)]
    variables = [
        (code(name), code(default)) for name, default in _VARIABLE_PATTERN.findall(makefile)
    ]
    return page(
        "Make targets",
        _INTRODUCTION,
        *sections,
        "## Variables",
        _VARIABLES_TEXT,
        table(("variable", "default"), variables),
    )
