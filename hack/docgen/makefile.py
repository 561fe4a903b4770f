"""The page of make's targets, from the comments beside them."""

from __future__ import annotations

import re

from . import ROOT
from .page import code, page, table

TARGET_PATTERN = re.compile(r"^([a-z-]+):.*?## (.+)$", re.MULTILINE)
VARIABLE_PATTERN = re.compile(r"^([A-Z_]+) \?= ?(.*)$", re.MULTILINE)
INTRODUCTION = """
Each target does the set-up that it needs: on a fresh clone `make test` alone is enough. `make help` prints the same list.
"""
VARIABLES_TEXT = """
Given behind the target, as in `make test TESTS=tests/settings/test_flags.py ARGS=-x`.
"""


def render() -> str:
    """The page."""
    text = (ROOT / "Makefile").read_text()
    targets = [(code(f"make {name}"), words) for name, words in TARGET_PATTERN.findall(text)]
    variables = [(code(name), code(default)) for name, default in VARIABLE_PATTERN.findall(text)]
    head = ("variable", "default")
    return page(
        "make",
        INTRODUCTION,
        table(("target", "what"), targets),
        "## Variables",
        VARIABLES_TEXT,
        table(head, variables),
    )
