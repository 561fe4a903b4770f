"""Runs every block of every page: shell and Python in order, YAML against a real API server or with
the code that reads such files.

A block that cannot run has a comment above it (`<!-- not run: reason -->`). There is no manager and
no vCenter here: test_howtos.py runs the blocks that need one (`<!-- run in order: reason -->`).
Each page begins with a new folder, so that it needs no file of another page.
tests/support/tutorial_runner.py explains the arguments of a fence.
"""

from __future__ import annotations

import shutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.docgen.markdown import Block, fenced_blocks
from hack.docgen.website import list_pages
from kubewright.testing.controlplane import ControlPlane
from support.docs_runner import make_environ, run_block
from support.tutorial_runner import TutorialRunner

ROOT = Path(__file__).parents[2]
TUTORIALS = "docs/tutorial/"  # test_tutorial.py runs them


def runnable_blocks(page: Path) -> list[Block]:
    # A block without a language is a drawing.
    return [
        block
        for block in fenced_blocks((ROOT / page).read_text())
        if block.language and not block.skip_reason and not block.order_reason
    ]


# Other tests run the tutorials and install the chart.
RUNNABLE_PAGES = [
    page
    for page in list_pages()
    if not str(page).startswith((TUTORIALS, "charts/")) and runnable_blocks(page)
]


@pytest.fixture(scope="module")
def docs_control_plane(binaries: dict[str, Path]) -> Iterator[ControlPlane]:
    """A control plane with config/default and without a manager."""
    plane = ControlPlane(binaries)
    plane.start_sync()
    plane.kubectl("apply", "--server-side", "-k", str(ROOT / "config/default"))
    plane.wait_for_crds()
    yield plane
    plane.stop_sync()


@pytest.fixture
def runner(docs_control_plane: ControlPlane, tmp_path: Path) -> Iterator[TutorialRunner]:
    """Runs commands in a copy of the repository that has only config/."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "config", clone / "config")
    runner = TutorialRunner(clone, make_environ(docs_control_plane, tmp_path))
    yield runner
    runner.stop_background()


@pytest.mark.parametrize("page", RUNNABLE_PAGES, ids=str)
def test_blocks_of_page_work(
    page: Path,
    runner: TutorialRunner,
    docs_control_plane: ControlPlane,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = types.ModuleType(f"page_{page.stem}".replace("-", "_"))
    # Types are found by the name of the module that declares them.
    monkeypatch.setitem(sys.modules, module.__name__, module)
    commands = "".join(block.text for block in runnable_blocks(page) if block.language == "sh")
    for block in runnable_blocks(page):
        try:
            run_block(
                block,
                runner,
                docs_control_plane,
                module,
                # Not again, if a command of the page applies it.
                is_validated=not (block.argument and block.argument in commands),
            )
        except Exception as error:
            raise AssertionError(f"{page}, line {block.line}: {error}") from error
