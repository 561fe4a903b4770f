"""The page of make targets, from their `##` comments."""

from __future__ import annotations

import re

from . import ROOT
from .page import code, page, table

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
    targets = [(code(f"make {name}"), text) for name, text in _TARGET_PATTERN.findall(makefile)]
    variables = [
        (code(name), code(default)) for name, default in _VARIABLE_PATTERN.findall(makefile)
    ]
    return page(
        "make",
        _INTRODUCTION,
        table(("target", "description"), targets),
        "## Variables",
        _VARIABLES_TEXT,
        table(("variable", "default"), variables),
    )
