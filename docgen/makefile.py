"""The page of make's targets, from the comments beside them."""

from __future__ import annotations

import re

from . import ROOT
from .page import code, page, table

TARGET = re.compile(r"^([a-z-]+):.*?## (.+)$", re.MULTILINE)
VARIABLE = re.compile(r"^([A-Z_]+) \?= ?(.*)$", re.MULTILINE)
INTRODUCTION = """
Each target does the set-up that it needs: on a fresh clone `make test` alone is enough. `make help` prints the same list.
"""
VARIABLES = """
Given behind the target, as in `make test TESTS=tests/test_settings.py ARGS=-x`.
"""


def made() -> str:
    """The page."""
    text = (ROOT / "Makefile").read_text()
    targets = [(code(f"make {name}"), words) for name, words in TARGET.findall(text)]
    variables = [(code(name), code(default)) for name, default in VARIABLE.findall(text)]
    head = ("variable", "default")
    return page("make", INTRODUCTION, table(("target", "what"), targets), "## Variables", VARIABLES, table(head, variables))
