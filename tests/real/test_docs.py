"""Runs every block of every page: shell and Python in order, YAML against a real API server or with
the code that reads such files.

A block that cannot run has a comment above it (`<!-- not run: reason -->`). There is no manager and
no vCenter here. tests/support/tutorial_runner.py explains the arguments of a fence.
"""

from __future__ import annotations

import asyncio
import inspect
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
TUTORIALS = "docs/tutorial/"  # test_tutorial.py runs them


def runnable_blocks(page: Path) -> list[Block]:
    # A block without a language is a drawing.
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
    """A control plane with config/default and without a manager."""
    plane = ControlPlane(binaries)
    plane.start_sync()
    plane.kubectl("apply", "--server-side", "-k", str(ROOT / "config/default"))
    plane.wait_for_crds()
    yield plane
    plane.stop_sync()


@pytest.fixture
def runner(
    docs_control_plane: ControlPlane, binaries: dict[str, Path], tmp_path: Path
) -> Iterator[TutorialRunner]:
    """Runs commands in a copy of the repository that has only config/."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "config", clone / "config")
    runner = TutorialRunner(clone, make_environ(docs_control_plane, binaries, tmp_path))
    yield runner
    runner.stop_background()


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
        # One for all pages: kubectl caches the API discovery there.
        "HOME": str(plane.folder),
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry.endswith("src")),
        "KUBECONFIG": str(plane.admin_kubeconfig),
        "TUTORIAL_FOLDER_FILE": str(folder / "folder"),
    }


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
                applied_by_commands=bool(block.argument) and block.argument in commands,
            )
        except Exception as error:
            raise AssertionError(f"{page}, line {block.line}: {error}") from error


def run_new_tests(module: types.ModuleType, before: dict[str, object]) -> None:
    """Run the test functions that a block has defined."""
    for name, function in list(vars(module).items()):
        is_new_test = name.startswith("test_") and before.get(name) is not function
        # A test with fixtures runs elsewhere.
        if is_new_test and not inspect.signature(function).parameters:
            asyncio.run(function())


def run_block(
    block: Block,
    runner: TutorialRunner,
    plane: ControlPlane,
    module: types.ModuleType,
    *,
    applied_by_commands: bool,
) -> None:
    """Run one block. A YAML file that a command of the page applies is not checked again."""
    if block.argument and block.language != "sh":
        (runner.folder / block.argument).parent.mkdir(parents=True, exist_ok=True)
        (runner.folder / block.argument).write_text(block.text)
    match block.language, block.argument:
        case "sh", "background":
            runner.start_background(block.text)
        case "sh", "":
            runner.run_commands(block.text)
        case "text", _:
            assert [
                line for line in block.text.splitlines() if line not in runner.read_output()
            ] == [], runner.read_output()
        case "python", _:
            before = dict(vars(module))
            exec(compile(block.text, f"line {block.line}", "exec"), vars(module))
            run_new_tests(module, before)
        case "yaml", _ if not applied_by_commands:
            validate_yaml(block, runner, plane)
        case "yaml", _:
            pass
        case _:
            raise AssertionError(f"no rule to run ```{block.language} {block.argument}")


def validate_yaml(block: Block, runner: TutorialRunner, plane: ControlPlane) -> None:
    file = runner.folder / (block.argument or "block.yaml")
    file.write_text(block.text)
    for document in yaml.safe_load_all(block.text):
        match document:
            case {"vcenters": _}:
                assert vcenterfile.VCENTERS_FORMAT.read(str(file)).vcenters
            case {"limits": _}:
                assert limits.LIMITS_FILE_FORMAT.read(str(file)).limits
            case {"apiVersion": _, "kind": _}:
                plane.kubectl(
                    "apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(document)
                )
            case {"resources": [*resources]} if file.name == "kustomization.yaml":
                # It may need files from later on the page, where a command renders it.
                assert all(
                    (file.parent / folder).is_dir()
                    for folder in (*resources, *document.get("components", ()))
                )
            case _:
                raise AssertionError(f"unknown kind of file: {block.text}")
