"""docs/howto/install.md with Helm alone: every command of that section, in order.

And the fixes of the doctor for such an installation.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.docgen.markdown import fenced_blocks
from kubewright.testing import eventually
from kubewright.testing.controller_manager import DEFAULT_CONTROLLERS
from kubewright.testing.controlplane import ControlPlane
from support.helm import Helm
from support.tutorial_runner import TutorialRunner

from .doctor_command import METRICS_OFF, DoctorReport, read_doctor_report

NAMESPACE = "vsphere-operators-system"


@pytest.fixture(scope="module")
def control_plane(binaries_with_controllers: dict[str, Path]) -> Iterator[ControlPlane]:
    """In place of the session's: an empty cluster with controllers, which create Pods."""
    plane = ControlPlane(binaries_with_controllers, controllers=DEFAULT_CONTROLLERS)
    plane.start_sync()
    yield plane
    plane.stop_sync()


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
            if block.text.startswith("helm install"):
                # A manager would list all kinds.
                await asyncio.to_thread(control_plane.wait_for_crds)
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


async def test_fixes_of_the_doctor_are_changes_of_the_release(
    control_plane: ControlPlane, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """With objects that kubectl applied, the next `helm upgrade` would fail."""
    chart = str(pytestconfig.rootpath / "charts/vsphere-operators")
    helm = Helm(tmp_path, control_plane.admin_kubeconfig)
    kubeconfig = tmp_path / "manager"

    async def diagnose(*flags: str) -> DoctorReport:
        leader = ("-leader-elect", "-leader-election-namespace=ops")
        flags = (f"-kubeconfig={kubeconfig}", METRICS_OFF, *leader, *flags)
        return await read_doctor_report(*flags)

    async def run_fix(fix: str, release: str) -> None:
        command = fix.partition("   #")[0].replace(" CHART ", f" {chart} ")
        program, *arguments = shlex.split(command)
        assert program == "helm"
        arguments = [release if argument == "RELEASE" else argument for argument in arguments]
        await asyncio.to_thread(helm.run, *arguments)

    values = "rbac.create=false,crds.keep=false,secrets.vc-creds=my-creds,image.repository=m"
    install = ("install", "mine", chart, "-n", "ops", "--create-namespace", f"--set={values}")
    await asyncio.to_thread(helm.run, *install)
    try:
        await asyncio.to_thread(
            control_plane.write_service_account_kubeconfig, "ops", "controller-manager", kubeconfig
        )
        (fix,) = {finding.fix for finding in (await diagnose()).permissions}
        assert "   # installed without Helm: kubectl apply --server-side -k config/rbac" in fix
        await run_fix(fix, "mine")
        report = await diagnose()
        assert [finding.level for finding in report.permissions] == ["ok"]

        # Now the manager's account may read the Lease, which names the release.
        report = await diagnose("-label-nodes")
        (fix,) = {finding.fix for finding in report.permissions}
        assert fix.startswith("helm upgrade mine CHART -n ops ")
        await run_fix(fix, "")
        report = await diagnose("-label-nodes")
        assert [finding.level for finding in report.permissions] == ["ok"]
        assert report.finding_about("CRDs").message.startswith("8 CRDs installed;")

        def list_pods() -> list[object]:
            with control_plane.apiserver.admin_client() as https:
                return list(https.call("GET", "/api/v1/namespaces/ops/pods")["items"])

        await eventually(lambda: asyncio.to_thread(list_pods))
        report = await diagnose("-vcenter-credentials=/etc/vc-creds")
        no_vcenter = next(item for item in report.problems if item.subject == "settings")
        assert no_vcenter.fix.startswith("kubectl -n ops create secret generic my-creds ")
    finally:
        await asyncio.to_thread(helm.run, "uninstall", "mine", "-n", "ops")
