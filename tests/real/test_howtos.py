"""Runs all how-tos in the order of their index, as one reader does, on one API server.

The commands are those of the pages alone. The Deployment has a manager, which
support/deployment_player.py runs, and the vCenter is simulated. Blocks with the mark
`<!-- not run: reason -->` are left out. test_docs.py runs each page for itself, without a manager,
and validates its files: here only files of blocks with the mark `<!-- run in order: reason -->` are
validated.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import types
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.docgen.markdown import fenced_blocks
from kubewright.testing import eventually
from kubewright.testing.controller_manager import DEFAULT_CONTROLLERS
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.deployment_player import DEPLOYMENT, DeploymentPlayer, play_deployment
from support.docs_runner import make_environ, run_block
from support.howtos import list_howtos
from support.manager_process import SYSTEM_NAMESPACE, ready_condition
from support.simulator_state import read_simulator_state
from support.tutorial_runner import TutorialRunner

from .crash_run import run_simulator

ROOT = Path(__file__).parents[2]
HOST_NAME = "esxi-dell-e.rainpole.com"
# What `make` and the commands of the pages read.
CLONE_FILES = ("config", "charts", "Makefile", "pyproject.toml", "src", "packages", "README.md")
# Kinds of other projects, which the components `prometheus`, `alerts` and `cert-manager` use.
OTHER_KINDS = {
    "monitoring.coreos.com/v1": {
        "ServiceMonitor": "servicemonitors",
        "PrometheusRule": "prometheusrules",
    },
    "cert-manager.io/v1": {"Certificate": "certificates", "Issuer": "issuers"},
}
# In place of cert-manager, which tls.md expects in the cluster.
ISSUE_CERTIFICATE = f"""
name=vsphere-operators-webhook-service.{SYSTEM_NAMESPACE}.svc
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=webhooks \\
  -addext subjectAltName=DNS:$name -keyout issued.key -out issued.crt
kubectl -n {SYSTEM_NAMESPACE} create secret tls vsphere-operators-webhook-server-cert \\
  --cert=issued.crt --key=issued.key
"""
Json = dict[str, Any]


def build_other_crds() -> Iterator[Json]:
    """CRDs of other projects, without their schemas."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for api_version, kinds in OTHER_KINDS.items():
        group, _, version = api_version.partition("/")
        for kind, plural in kinds.items():
            yield {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{group}"},
                "spec": {
                    "group": group,
                    "names": {"kind": kind, "plural": plural},
                    "scope": "Namespaced",
                    "versions": [
                        {
                            "name": version,
                            "served": True,
                            "storage": True,
                            "schema": {"openAPIV3Schema": schema},
                        }
                    ],
                },
            }


@pytest.fixture
def howto_plane(binaries_with_controllers: dict[str, Path]) -> Iterator[ControlPlane]:
    """Without any of our objects."""
    plane = ControlPlane(binaries_with_controllers, controllers=DEFAULT_CONTROLLERS)
    plane.start_sync()
    crds = list(build_other_crds())
    plane.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(crds))
    plane.wait_for_crds(*(crd["metadata"]["name"] for crd in crds))
    yield plane
    plane.stop_sync()


@pytest.fixture
async def vcenter(pytestconfig: pytest.Config, tmp_path: Path) -> AsyncIterator[SimulatedVCenter]:
    binary = pytestconfig.rootpath / ".testenv/bin/vcsim"
    async with run_simulator(binary, tmp_path / "vcsim", f"--host-name={HOST_NAME}") as simulator:
        yield simulator


@pytest.fixture
async def player(
    howto_plane: ControlPlane, vcenter: SimulatedVCenter, tmp_path: Path
) -> AsyncIterator[DeploymentPlayer]:
    async with play_deployment(howto_plane, vcenter, tmp_path / "pod") as player:
        yield player


@pytest.fixture
def runner(
    howto_plane: ControlPlane, player: DeploymentPlayer, tmp_path: Path
) -> Iterator[TutorialRunner]:
    clone = tmp_path / "clone"
    clone.mkdir()
    for name in CLONE_FILES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, clone / name)
    (clone / ".venv").symlink_to(sys.prefix)
    runner = TutorialRunner(clone, make_environ(howto_plane, tmp_path, make_programs(tmp_path)))
    player.write_pod_command(tmp_path / "bin/manager-in-pod")
    write_kubectl(tmp_path / "bin/kubectl", howto_plane.binaries["kubectl"])
    yield runner
    runner.stop_background()


def make_programs(folder: Path) -> dict[str, str]:
    """`make` with this Python instead of a new virtual environment."""
    make, venv = shutil.which("make"), sys.prefix
    return {
        "make": f"{make} --no-print-directory VENV={venv} -o {venv}/ready",
        "kubectl-vsphere": f"{sys.executable} -m vsphere_operators.kubectl",
        "manager-in-pod": "false",
    }


def write_kubectl(file: Path, kubectl: Path) -> None:
    """kubectl, except that there is no kubelet which could run a command in a Pod."""
    file.write_text(
        "#!/bin/sh\n"
        'case " $* " in\n'
        f'*" exec deploy/{DEPLOYMENT} -- /manager "*)\n'
        '  while [ "$1" != "--" ]; do shift; done\n'
        "  shift 2\n"
        '  exec manager-in-pod "$@" ;;\n'
        "esac\n"
        f'exec {kubectl} "$@"\n'
    )


@dataclass
class Reader:
    """Follows the pages, and checks what their commands have deployed."""

    runner: TutorialRunner
    plane: ControlPlane
    clone: Path
    problems: list[str] = field(default_factory=list)
    deployed: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Replicas and image after each block that deploys, by the name of the page."""

    def read_page(self, page: Path) -> None:
        module = types.ModuleType(f"howto_{page.stem}".replace("-", "_"))
        # Types are found by the name of the module that declares them.
        sys.modules[module.__name__] = module
        self.runner.folder = self.clone
        blocks = [
            block
            for block in fenced_blocks((ROOT / page).read_text())
            if block.language and not block.skip_reason
        ]
        commands = "".join(block.text for block in blocks if block.language == "sh")
        for block in blocks:
            try:
                is_applied = bool(block.argument) and block.argument in commands
                run_block(
                    block,
                    self.runner,
                    self.plane,
                    module,
                    # test_docs.py validates the files of the other blocks.
                    is_validated=bool(block.order_reason) and not is_applied,
                )
                if "make deploy" in block.text or "-f dist/install.yaml" in block.text:
                    self._check_deployment(page)
            # All at once: a run takes minutes.
            except Exception as error:
                self.problems.append(f"{page}, line {block.line}: {error}")
        del sys.modules[module.__name__]

    def _check_deployment(self, page: Path) -> None:
        where = ("-n", SYSTEM_NAMESPACE)
        self.plane.kubectl(*where, "rollout", "status", f"deployment/{DEPLOYMENT}", "--timeout=90s")
        deployment = self.get(*where, "deployment", DEPLOYMENT)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        state = (deployment["spec"]["replicas"], container["image"])
        self.deployed.setdefault(page.name, []).append(state)
        managers = {
            entry["manager"]
            for entry in deployment["metadata"]["managedFields"]
            if entry.get("subresource") != "status"
        }
        assert managers <= {"kubectl", "kube-controller-manager"}, managers

    def call(self, path: str) -> Json:
        with self.plane.apiserver.admin_client() as https:
            return dict(https.call("GET", path))

    def get(self, *arguments: str) -> Json:
        text = self.plane.kubectl("get", *arguments, "-o", "json", "--show-managed-fields")
        return dict(json.loads(text))


async def test_all_howtos_in_order(
    runner: TutorialRunner,
    howto_plane: ControlPlane,
    vcenter: SimulatedVCenter,
    player: DeploymentPlayer,
    tmp_path: Path,
) -> None:
    reader = Reader(runner, howto_plane, runner.folder)
    pages = list_howtos()
    assert pages[0].name == "try.md"
    # The first page begins in the demo, which has the CRDs, and ends with `make uninstall`.
    await asyncio.to_thread(runner.run_commands, "make install")
    for page in pages:
        if page.name == "tls.md":
            await asyncio.to_thread(runner.run_commands, ISSUE_CERTIFICATE)
        await asyncio.to_thread(reader.read_page, page)
        if page.name == "try.md":
            await asyncio.to_thread(runner.run_commands, "make uninstall")
        elif page.name == "install.md":
            await wait_for_ready_host(reader)
        elif page.name == "ha.md":
            await check_single_replica_can_be_evicted(reader)
    removal = next(
        block.text
        for block in fenced_blocks((ROOT / "docs/howto/install.md").read_text())
        if "make undeploy" in block.text
    )
    reader.runner.folder = reader.clone
    try:
        await asyncio.to_thread(runner.run_commands, removal)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        reader.problems.append(f"the end of install.md: {error}")
    log = player.manager.read_log_tail() if player.manager else ""
    assert reader.problems == [], "\n\n".join([*reader.problems, log])
    # Two replicas, which `make deploy` with another image keeps, and back to one.
    image = "example.com/vsphere-operators"
    assert reader.deployed["ha.md"] == [(2, f"{image}:v2"), (1, f"{image}:v1")]
    # What the pages create is the user's, and so is what is left of earlier overlays. What the
    # manager creates is not listed.
    _, _, kept = runner.output.partition(f"kept the namespace {SYSTEM_NAMESPACE}: ")
    kept, _, _ = kept.partition(". To delete it with everything in it")
    kinds = {name.split()[0] for name in kept.removeprefix("it also contains ").split(", ")}
    assert kinds.isdisjoint({"Deployment", "Event", "Lease", "Pod", "ReplicaSet", "Service"}), kept
    assert f"ConfigMap {SYSTEM_NAMESPACE}/maintenance" in kept
    assert f"Secret {SYSTEM_NAMESPACE}/vc-creds" in kept
    assert howto_plane.kubectl("-n", SYSTEM_NAMESPACE, "get", "deployments", "-o", "name") == ""
    assert "topology.corinternal.com" not in howto_plane.kubectl("get", "crds", "-o", "name")
    state = await read_simulator_state(vcenter)
    groups = {vm.name.partition("-replica-")[0] for vm in state.vms if "-replica-" in vm.name}
    # vmgroup.md sets deletionPolicy: Orphan for this group.
    assert groups == {"web"}


async def wait_for_ready_host(reader: Reader) -> None:
    """install.md promises that READY becomes True."""

    path = "/apis/topology.corinternal.com/v1/namespaces/default/hostinfoes/hostinfo-host-e"

    async def is_ready() -> bool:
        host = await asyncio.to_thread(reader.call, path)
        return ready_condition(host).get("status") == "True"

    try:
        await eventually(is_ready, within=60, every=0.2)
    except AssertionError:
        host = await asyncio.to_thread(reader.get, "hostinfo", "hostinfo-host-e")
        reader.problems.append(f"install.md: the HostInfo is not ready: {host.get('status')}")


async def check_single_replica_can_be_evicted(reader: Reader) -> None:
    """The budget of ha.md over one replica: with minAvailable, no node could be drained."""
    where = ("-n", SYSTEM_NAMESPACE)
    deployment = await asyncio.to_thread(reader.get, *where, "deployment", DEPLOYMENT)
    assert deployment["spec"]["replicas"] == 1
    budget = str(reader.clone / "config/components/ha/pod_disruption_budget.yaml")
    await asyncio.to_thread(reader.plane.kubectl, "apply", "--server-side", "-f", budget)

    path = f"/apis/policy/v1/namespaces/{SYSTEM_NAMESPACE}/poddisruptionbudgets/{DEPLOYMENT}"

    async def allows_one() -> bool:
        status = (await asyncio.to_thread(reader.call, path)).get("status", {})
        return bool(status.get("expectedPods") == 1 and status.get("disruptionsAllowed") == 1)

    await eventually(allows_one, within=30, every=0.2)
    await asyncio.to_thread(reader.plane.kubectl, *where, "delete", "pdb", DEPLOYMENT)
