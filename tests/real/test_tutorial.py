"""Runs the tutorials: every command and file, on a real API server and a simulated vCenter."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.pins import KUBERNETES_VARIABLE
from simulator import SimulatedVCenter
from support.tutorial_runner import TutorialRunner

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs/tutorial"


@pytest.fixture
async def simulator(
    binaries: dict[str, Path], pytestconfig: pytest.Config, tmp_path: Path
) -> AsyncIterator[SimulatedVCenter]:
    binary = (
        Path(os.environ.get("KUBEWRIGHT_TESTENV") or pytestconfig.rootpath / ".testenv/bin")
        / "vcsim"
    )
    flags = (
        "--host-name=esxi-dell-e.rainpole.com",
        "--template=vm-operator-template",
        "--folder=vm-operator",
    )
    simulator = await SimulatedVCenter(binary, tmp_path / "vcsim", *flags).start()
    yield simulator
    await simulator.stop()


@pytest.fixture(scope="module")
def tutorial_control_plane(binaries: dict[str, Path]) -> Iterator[ControlPlane]:
    """For both tutorials, which have no name in common."""
    plane = ControlPlane(binaries)
    plane.start_sync()
    yield plane
    plane.stop_sync()


@pytest.fixture
def runner(
    tutorial_control_plane: ControlPlane,
    simulator: SimulatedVCenter,
    binaries: dict[str, Path],
    tmp_path: Path,
) -> Iterator[TutorialRunner]:
    (tmp_path / "work").mkdir()
    runner = TutorialRunner(
        tmp_path / "work", make_environ(tutorial_control_plane, simulator, binaries, tmp_path)
    )
    yield runner
    runner.stop_background()


def make_environ(
    plane: ControlPlane, vcenter: SimulatedVCenter, binaries: dict[str, Path], folder: Path
) -> dict[str, str]:
    # The commands are on PATH. `make` uses this Python instead of a new virtual environment.
    bin_folder, venv = folder / "bin", Path(sys.prefix)
    bin_folder.mkdir()
    sources = os.pathsep.join(["src", *(entry for entry in sys.path if entry.endswith("src"))])
    write_script(bin_folder / "kubewright", f'exec {sys.executable} -m kubewright "$@"')
    write_script(bin_folder / "kubectl", f'exec {binaries["kubectl"]} "$@"')
    write_script(
        bin_folder / "make", f'exec {shutil.which("make")} VENV={venv} -o {venv}/ready "$@"'
    )
    host, port = vcenter.address
    return {
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PYTHONPATH": sources,
        "KUBECONFIG": str(plane.admin_kubeconfig),
        "KUBEBUILDER_ASSETS": str(binaries["etcd"].parent),
        KUBERNETES_VARIABLE: os.environ.get(KUBERNETES_VARIABLE, ""),
        # Kept: mypy needs 10 s for the packages that both projects import.
        "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache/tutorial"),
        "METRICS_ADDR": "127.0.0.1:0",
        "TUTORIAL_FOLDER_FILE": str(folder / "folder"),
        "GOVMOMI_URL": f"{host}:{port}",
        "GOVMOMI_USERNAME": vcenter.user,
        "GOVMOMI_PASSWORD": vcenter.password,
        "GOVMOMI_INSECURE": "true",
        "VC_HOST": f"{host}:{port}",
        "VC_USER": vcenter.user,
        "VC_PASS": vcenter.password,
        "VC_INSECURE": "true",
    }


def write_script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_hostinfo_tutorial_works(runner: TutorialRunner) -> None:
    runner.run_page(DOCS / "hostinfo.md")


def test_vmgroup_tutorial_works_and_leaves_no_vm(
    runner: TutorialRunner, simulator: SimulatedVCenter
) -> None:
    runner.run_page(DOCS / "vmgroup.md")
    entities = simulator.request_blocking("GET", "/entities")
    assert [entity for entity in entities if "-replica-" in entity["name"]] == []
