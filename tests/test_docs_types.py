"""Checks the types in the Python blocks of every page, as a reader's own mypy would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hack.docgen import ROOT
from hack.docgen.markdown import fenced_blocks
from hack.docgen.website import list_pages

# tests/real/test_tutorial.py checks the projects of the tutorials, and the block of the recordings
# is a part of a test.
NOT_CHECKED = ("docs/tutorial/", "docs/howto/record.md")


def extract_module(page: str) -> str:
    """The Python blocks of a page as one module, each at its line of the page."""
    lines = [""] * (page.count("\n") + 1)
    for block in fenced_blocks(page):
        if block.language == "python" and not block.skip_reason:
            for number, line in enumerate(block.text.splitlines(), block.line):
                lines[number] = line
    return "\n".join(lines).rstrip() + "\n"


def test_blocks_pass_mypy(tmp_path: Path) -> None:
    modules = {
        page: module
        for page in list_pages()
        if not str(page).startswith(NOT_CHECKED)
        and (module := extract_module((ROOT / page).read_text())).strip()
    }
    assert len(modules) > 3
    for page, module in modules.items():
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).with_suffix(".py").write_text(module)
    files = [str(page.with_suffix(".py")) for page in modules]
    command = [sys.executable, "-m", "mypy", "--strict", "--explicit-package-bases", *files]
    environ = {"MYPYPATH": str(ROOT / "packages/kubewright/src")}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr


def test_blocks_keep_their_lines() -> None:
    page = "# A\n\n```python\nx = 1\n```\n\n```sh\nls\n```\n\n```python a.py\ny = 2\n```\n"
    assert extract_module(page) == "\n\n\nx = 1\n\n\n\n\n\n\n\ny = 2\n"
