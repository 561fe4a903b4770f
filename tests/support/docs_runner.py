"""Runs blocks of a page: shell, Python, and YAML by the API server or the code that reads it."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from hack.docgen.markdown import Block
from kubewright.testing.controlplane import ControlPlane
from vsphere_operators.kinds.vmgroup import limits
from vsphere_operators.vcenters import config as vcenterfile

from .tutorial_runner import TutorialRunner


def make_environ(
    plane: ControlPlane, folder: Path, more_programs: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables of a shell with these programs; each is the begin of a command line."""
    programs = {
        "kubectl": str(plane.binaries["kubectl"]),
        "python": sys.executable,
        "manager": f"{sys.executable} -m vsphere_operators.main",
        **(more_programs or {}),
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
    is_validated: bool,
) -> None:
    """Run one block. A YAML file is written; with `is_validated` also checked."""
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
        case "yaml", _ if is_validated:
            validate_yaml(block, runner, plane)
        case "yaml", _:
            pass
        case _:
            raise AssertionError(f"no rule to run ```{block.language} {block.argument}")


def validate_yaml(block: Block, runner: TutorialRunner, plane: ControlPlane) -> None:
    file = runner.folder / (block.argument or "block.yaml")
    file.write_text(block.text)
    objects = list[Any]()
    for document in yaml.safe_load_all(block.text):
        match document:
            case {"vcenters": _}:
                assert vcenterfile.VCENTERS_FORMAT.read(str(file)).vcenters
            case {"limits": _}:
                assert limits.LIMITS_FILE_FORMAT.read(str(file)).limits
            case {"apiVersion": _, "kind": _}:
                objects.append(document)
            case {"resources": [*resources]} if file.name == "kustomization.yaml":
                # It may need files from later on the page, where a command renders it.
                assert all(
                    (file.parent / folder).is_dir()
                    for folder in (*resources, *document.get("components", ()))
                )
            case _:
                raise AssertionError(f"unknown kind of file: {block.text}")
    if objects:
        plane.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(objects))
