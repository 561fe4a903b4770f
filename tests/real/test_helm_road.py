"""docs/howto/install.md with Helm alone: every command of that section, in order."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hack.docgen.markdown import fenced_blocks
from kubewright.client import Client
from kubewright.kubeconfig import load_config
from kubewright.testing.controller_manager import DEFAULT_CONTROLLERS
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.kubelet import fake_kubelet
from kubewright.transport import Transport
from support.tutorial_runner import TutorialRunner

NAMESPACE = "vsphere-operators-system"


@pytest.fixture(scope="module")
def control_plane(binaries_with_controllers: dict[str, Path]) -> Iterator[ControlPlane]:
    """In place of the session's: an empty cluster with controllers, which create Pods."""
    plane = ControlPlane(binaries_with_controllers, controllers=DEFAULT_CONTROLLERS)
    plane.start_sync()
    yield plane
    plane.stop_sync()


@pytest.fixture
async def kubelet(control_plane: ControlPlane) -> AsyncIterator[None]:
    """Marks the Pods of the Deployment as running, so that `helm --wait` returns."""
    kubeconfig = str(control_plane.admin_kubeconfig)
    connection = await asyncio.to_thread(load_config, kubeconfig, environ={}, home=Path("/"))
    transport = Transport(connection)
    async with fake_kubelet(Client(transport)):
        yield
    await transport.close()


@pytest.fixture
def runner(
    control_plane: ControlPlane, pytestconfig: pytest.Config, tmp_path: Path
) -> TutorialRunner:
    """Runs commands in a copy of the clone that has only the chart, with kubectl and helm."""
    clone, programs = tmp_path / "clone", tmp_path / "bin"
    shutil.copytree(pytestconfig.rootpath / "charts", clone / "charts")
    programs.mkdir()
    (programs / "kubectl").symlink_to(control_plane.binaries["kubectl"])
    (programs / "helm").symlink_to(pytestconfig.rootpath / ".testenv/bin/helm")
    environ = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(control_plane.admin_kubeconfig),
        "TUTORIAL_FOLDER_FILE": str(tmp_path / "folder"),
    }
    return TutorialRunner(clone, environ)


async def test_section_of_helm_is_a_complete_road(
    control_plane: ControlPlane,
    kubelet: None,
    runner: TutorialRunner,
    pytestconfig: pytest.Config,
) -> None:
    page = (pytestconfig.rootpath / "docs/howto/install.md").read_text()
    section = page.partition("\n## Install with Helm\n")[2].partition("\n## ")[0]
    output_by_command: dict[str, str] = {}
    for block in fenced_blocks(section):
        if block.language == "sh":
            await asyncio.to_thread(runner.run_commands, block.text)
            output_by_command[" ".join(block.text.split()[:2])] = runner.read_output()
        else:
            (runner.folder / block.argument).write_text(block.text)
    assert list(output_by_command) == [
        "kubectl create",
        "helm install",
        "helm get",
        "helm upgrade",
        "helm uninstall",
        "kubectl delete",
    ]
    assert "/manager doctor" in output_by_command["helm get"]
    history = output_by_command["helm upgrade"]
    assert "Rollback was a success" in history
    assert [line.split()[0] for line in history.splitlines() if line[:1].isdigit()] == ["1", "2"]
    deleted = output_by_command["kubectl delete"]
    assert deleted.count("customresourcedefinition") == 8

    def find_left_over() -> str:
        return control_plane.kubectl("get", "crds,clusterroles,clusterrolebindings", "-o", "name")

    left = await asyncio.to_thread(find_left_over)
    assert [line for line in left.splitlines() if "vsphere-operators" in line] == []
