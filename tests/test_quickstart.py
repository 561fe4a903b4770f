"""Counts commands, files and lines of the tutorials, compares them with kubebuilder, and runs the
four commands from an empty folder to a running operator.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubewright.builder.cli import main
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.pins import KUBERNETES_VARIABLE
from support.golden_projects import read_project_files
from support.tutorial_runner import TutorialCounts, TutorialRunner, count_tutorial, fenced_blocks

DOCS = Path(__file__).parents[1] / "docs/tutorial"
COUNTS_START, COUNTS_END = "<!-- counts:start -->\n", "<!-- counts:end -->"
# Counted by hand in the original texts; the list is below the table.
KUBEBUILDER_COUNTS = {"hostinfo": TutorialCounts(15, 5, 89), "vmgroup": TutorialCounts(19, 8, 0)}


def count_kubewright(name: str, folder: Path) -> TutorialCounts:
    page = DOCS / f"{name}.md"
    for command in (
        command
        for block in fenced_blocks(page)[:1]
        for command in block.commands
        if command.startswith("kubewright")
    ):
        arguments = shlex.split(command)[1:]
        if arguments[0] == "init":
            arguments[1] = str(folder / arguments[1])
        else:
            arguments += ["--project", str(find_project(folder))]
        assert main(arguments) == 0
    return count_tutorial(page, read_project_files(find_project(folder)))


def find_project(folder: Path) -> Path:
    (root,) = folder.iterdir()
    return root


def render_counts_table(folder: Path) -> str:
    rows = ["| | commands | files touched | lines typed |\n|---|---|---|---|\n"]
    for name, kubebuilder in KUBEBUILDER_COUNTS.items():
        (folder / name).mkdir()
        counts = count_kubewright(name, folder / name)
        rows.append(
            f"| {name}, kubewright (tests and deployment included)"
            f" | {counts.commands} | {counts.files} | {counts.lines} |\n"
        )
        lines = kubebuilder.lines or "copied from a repository"
        rows.append(
            f"| {name}, kubebuilder (no tests)"
            f" | {kubebuilder.commands} | {kubebuilder.files} | {lines} |\n"
        )
    return "".join(rows)


def test_counts_in_the_tutorial_are_current(tmp_path: Path) -> None:
    page = (DOCS / "README.md").read_text()
    committed = page.partition(COUNTS_START)[2].partition(COUNTS_END)[0]
    current = render_counts_table(tmp_path)
    print(current)
    assert committed == current


@pytest.fixture
def runner(
    control_plane: ControlPlane, binaries: dict[str, Path], tmp_path: Path
) -> Iterator[TutorialRunner]:
    (tmp_path / "work").mkdir()
    venv = Path(sys.prefix)
    sources = os.pathsep.join(["src", *(entry for entry in sys.path if entry.endswith("src"))])
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": sources,
        "KUBECONFIG": str(control_plane.admin_kubeconfig),
        "KUBEBUILDER_ASSETS": str(binaries["etcd"].parent),
        KUBERNETES_VARIABLE: os.environ.get(KUBERNETES_VARIABLE, ""),
        "METRICS_ADDR": "127.0.0.1:0",
        "TUTORIAL_FOLDER_FILE": str(tmp_path / "folder"),
        "KUBEWRIGHT": f"{sys.executable} -m kubewright",
        "MAKE": f"{shutil.which('make')} VENV={venv} -o {venv}/ready",
    }
    runner = TutorialRunner(tmp_path / "work", environ)
    yield runner
    runner.stop_background()


FIELD_FLAGS = "--spec name:str --status text:str"
COMMANDS = (
    "$KUBEWRIGHT init --project-name journey --domain journey.example.com",
    f"$KUBEWRIGHT create api --group demo --version v1 --kind Hello {FIELD_FLAGS}",
    "$MAKE test",
    "$MAKE install run",
)


async def test_four_commands_lead_to_a_running_operator(
    runner: TutorialRunner, control_plane: ControlPlane
) -> None:
    began = time.monotonic()
    for command in COMMANDS[:2]:
        await asyncio.to_thread(runner.run_commands, command)
    before = read_project_files(runner.folder)
    kind = runner.folder / "src/journey/kinds/hello.py"
    kind.write_text(
        before["src/journey/kinds/hello.py"].replace(
            "return HelloStatus()", 'return HelloStatus(text=f"Hello, {spec.name}!")'
        )
    )
    await asyncio.to_thread(runner.run_commands, COMMANDS[2])
    assert " passed" in runner.output
    assert [
        path
        for path, text in read_project_files(runner.folder).items()
        if before.get(path) != text and not path.startswith("config/")
    ] == ["src/journey/kinds/hello.py"]
    runner.start_background(COMMANDS[3])
    await asyncio.to_thread(runner.expect_lines, ["Starting workers"])
    control_plane.apply(runner.folder / "config/samples/demo_v1_hello.yaml")
    control_plane.kubectl("wait", "--for=condition=Ready", "hello/hello-sample", "--timeout=60s")
    assert (
        control_plane.kubectl("get", "hello", "hello-sample", "-o", "jsonpath={.status.text}")
        == "Hello, example!"
    )
    print(
        f"\n{len(COMMANDS)} commands, 1 edited file, {time.monotonic() - began:.0f} s"
        " from an empty folder to a running, tested operator"
    )
    control_plane.kubectl("delete", "hello", "--all")
