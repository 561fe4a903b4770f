"""The checklist of controller-runtime's specifications names tests that exist, and its numbers are
those in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .support.controller_runtime_specs import CACHE, CONTROLLER, MANAGER, parse

ROOT = Path(__file__).parents[3]
TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
PARTS = {"cache": (CACHE, 112), "controller": (CONTROLLER, 110), "manager": (MANAGER, 90)}


@pytest.fixture(scope="module")
def test_names() -> set[str]:
    folders = (ROOT / "packages/kubewright/tests", ROOT / "tests")
    files = (file for folder in folders for file in folder.rglob("test_*.py"))
    return {name for file in files for name in TEST.findall(file.read_text())}


@pytest.mark.parametrize("part", PARTS)
def test_every_specification_has_a_test_or_a_reason(part: str, test_names: set[str]) -> None:
    checklist, count = PARTS[part]
    specs = parse(checklist)
    assert sum(spec.number for spec in specs) == count
    assert [spec.where for spec in specs if spec.applies and spec.where not in test_names] == []


def test_numbers_in_the_documentation_are_those_of_the_checklist() -> None:
    page = (ROOT / "docs/designs/testing.md").read_text()
    for part, (checklist, count) in PARTS.items():
        held = sum(spec.number for spec in parse(checklist) if spec.applies)
        assert f"| {part} | {count} | {held} | {count - held} |" in page
