"""`kubewright run`: an operator in one file."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from kubewright.builder.cli import main
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane

GREETING = '''
from typing import Annotated
from kubewright import Controller, Doc, Resource, Spec, Status, kind, select

class SingleSpec(Spec):
    name: Annotated[str, Doc("The name to greet.")]

class SingleStatus(Status):
    text: Annotated[str | None, Doc("The greeting.")] = None

@kind("single.example.com/v1")
class Single(Resource[SingleSpec, SingleStatus]):
    """A greeting."""

class SingleController(Controller[Single]):
    kind = select(Single, label_selector="!hidden")

    async def reconcile(self, single: Single) -> None:
        single.status = SingleStatus(text=f"Hello, {single.spec.name}!")
'''
OBJECT = """
apiVersion: single.example.com/v1
kind: Single
metadata: {name: a}
spec: {name: Ann}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    file = tmp_path / "single_greeting.py"
    file.write_text(GREETING)
    return file


async def test_controllers_of_the_file_run_with_their_crds(
    file: Path, control_plane: ControlPlane, namespace: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubewright", "run", "--install", str(file), "-metrics-addr=0"),
        *("-kubeconfig", str(control_plane.admin_kubeconfig)),
    )
    try:
        await eventually(
            lambda: control_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=OBJECT),
            within=30,
        )
        await eventually(
            lambda: (
                control_plane.kubectl(
                    "get", "single", "a", "-n", namespace, "-o", "jsonpath={.status.text}"
                )
                == "Hello, Ann!"
            )
        )
    finally:
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "has no controller: define a class that extends Controller"),
        (
            GREETING + "    def __init__(self, url: str) -> None: ...\n",
            "SingleController cannot be created without arguments",
        ),
        ("Settings = 1\n", "Settings must be a subclass of kubewright.command.ManagerFlags"),
    ],
)
def test_file_without_runnable_controllers_is_reported(
    file: Path, text: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file.write_text(text)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: a}}], "
        'clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]}'
    )
    assert main(["run", str(file), "-kubeconfig", str(kubeconfig)]) == 1
    assert message in capsys.readouterr().err


def test_build_of_the_file_is_used_with_its_settings(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(
        "from dataclasses import dataclass\n"
        "from kubewright import command\n"
        "from kubewright.flags import flag\n"
        "@dataclass(frozen=True)\n"
        "class Settings(command.ManagerFlags):\n"
        '    color: str = flag("color", "red", "The color.")\n'
        "def build(manager, settings): ...\n"
    )
    assert main(["run", str(file), "-help"]) == 0
    assert "-color" in capsys.readouterr().out
