"""Every block of every page, run: shell and Python in order, YAML judged by a real API server or by the code that reads such files.

A block that cannot be run says so in the line above it (`<!-- not run: why -->`). There is no manager and no vCenter here: what a page
shows of those is marked, and the mark names the test that has it. The words of a fence are those of the tutorials, see tests/support/tutorial_runner.py.
"""

from __future__ import annotations

import os
import shutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.docgen.markdown import Block, fenced_blocks
from hack.docgen.website import list_pages
from kubewright.testing.controlplane import ControlPlane
from support.tutorial_runner import TutorialRunner
from vsphere_operators.kinds.vmgroup import limits
from vsphere_operators.vcenters import config as vcenterfile

ROOT = Path(__file__).parents[2]
TUTORIALS = "docs/tutorial/"  # walked by test_tutorial.py


def runnable_blocks(page: Path) -> list[Block]:
    """What is to be run of a page; a block without a language is a drawing."""
    return [
        block
        for block in fenced_blocks((ROOT / page).read_text())
        if block.language and not block.skip_reason
    ]


RUNNABLE_PAGES = [
    page for page in list_pages() if not str(page).startswith(TUTORIALS) and runnable_blocks(page)
]


@pytest.fixture(scope="module")
def docs_control_plane(binaries: dict[str, Path]) -> Iterator[ControlPlane]:
    """A control plane of the reader's own, with config/default in it and no manager."""
    made = ControlPlane(binaries)
    made.start_sync()
    made.kubectl("apply", "--server-side", "-k", str(ROOT / "config/default"))
    made.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    yield made
    made.stop_sync()


@pytest.fixture
def runner(
    docs_control_plane: ControlPlane, binaries: dict[str, Path], tmp_path: Path
) -> Iterator[TutorialRunner]:
    """A reader in a clone of which only config/ is there."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "config", clone / "config")
    made = TutorialRunner(clone, make_environ(docs_control_plane, binaries, tmp_path))
    yield made
    made.stop_background()


def make_environ(plane: ControlPlane, binaries: dict[str, Path], folder: Path) -> dict[str, str]:
    programs = {
        "kubectl": str(binaries["kubectl"]),
        "python": sys.executable,
        "manager": f"{sys.executable} -m vsphere_operators.main",
    }
    (folder / "bin").mkdir()
    for name, program in programs.items():
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        script.chmod(0o755)
    return {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOME": str(
            plane.folder
        ),  # one for all pages: kubectl keeps there what the API server serves
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry.endswith("src")),
        "KUBECONFIG": str(plane.admin_kubeconfig),
        "WALK_PLACE": str(folder / "place"),
    }


@pytest.mark.parametrize("page", RUNNABLE_PAGES, ids=str)
def test_what_a_page_shows_works(
    page: Path,
    runner: TutorialRunner,
    docs_control_plane: ControlPlane,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = types.ModuleType(f"page_{page.stem}".replace("-", "_"))
    # Types are looked up by the name of the module that they are declared in.
    monkeypatch.setitem(sys.modules, module.__name__, module)
    commands = "".join(block.text for block in runnable_blocks(page) if block.language == "sh")
    for block in runnable_blocks(page):
        try:
            run_block(
                block,
                runner,
                docs_control_plane,
                module,
                applied_by_commands=bool(block.argument) and block.argument in commands,
            )
        except Exception as error:
            raise AssertionError(f"{page}, line {block.line}: {error}") from error


def run_block(
    block: Block,
    walk: TutorialRunner,
    plane: ControlPlane,
    module: types.ModuleType,
    *,
    applied_by_commands: bool,
) -> None:
    """Do what a block says; a file that a command of the page applies is judged by that."""
    if block.argument and block.language != "sh":
        (walk.folder / block.argument).parent.mkdir(parents=True, exist_ok=True)
        (walk.folder / block.argument).write_text(block.text)
    match block.language, block.argument:
        case "sh", "background":
            walk.start_background(block.text)
        case "sh", "":
            walk.run_commands(block.text)
        case "text", _:
            assert [
                line for line in block.text.splitlines() if line not in walk.read_output()
            ] == [], walk.read_output()
        case "python", _:
            exec(compile(block.text, f"line {block.line}", "exec"), vars(module))
        case "yaml", _ if not applied_by_commands:
            validate_yaml(block, walk, plane)
        case "yaml", _:
            pass
        case _:
            raise AssertionError(f"nobody knows how to run ```{block.language} {block.argument}")


def validate_yaml(block: Block, walk: TutorialRunner, plane: ControlPlane) -> None:
    """Let whoever reads such a file say whether it is one."""
    file = walk.folder / (block.argument or "block.yaml")
    file.write_text(block.text)
    for document in yaml.safe_load_all(block.text):
        match document:
            case {"vcenters": _}:
                assert vcenterfile.read_vcenters(str(file))
            case {"limits": _}:
                assert limits.LIMITS_FILE_FORMAT.read(str(file)).limits
            case {"apiVersion": _, "kind": _}:
                plane.kubectl(
                    "apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(document)
                )
            case {"resources": [*resources]} if file.name == "kustomization.yaml":
                # It may need files that come later on the page; a command there renders it, see tests/test_docs.py.
                assert all(
                    (file.parent / each).is_dir()
                    for each in (*resources, *document.get("components", ()))
                )
            case _:
                raise AssertionError(f"nobody reads such a file: {block.text}")
