"""The reference page has every public name, in a table and in an example that runs."""

from __future__ import annotations

import re
import types
from pathlib import Path

import pytest

import kubewright

PAGE = (Path(__file__).parents[3] / "docs/reference/kubewright.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
NAMES = re.compile(r"`(\w+)`")


def names_in_tables() -> list[str]:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in NAMES.findall(row.split(" | ")[0])]


def test_page_lists_every_public_name_once() -> None:
    assert sorted(names_in_tables()) == sorted(kubewright.__all__)


@pytest.mark.parametrize("name", kubewright.__all__)
def test_public_name_is_in_an_example(name: str) -> None:
    assert any(re.search(rf"\b{name}\b", block) for block in BLOCKS)


def test_examples_run_in_their_order() -> None:
    module = types.ModuleType("page")
    for block in BLOCKS:
        # Not with the `annotations` of this module: the page has no future import.
        code = compile(block, "docs/reference/kubewright.md", "exec", dont_inherit=True)
        exec(code, vars(module))
