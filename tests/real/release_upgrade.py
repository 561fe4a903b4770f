"""One cluster and one vCenter on which managers of two releases run, one after the other."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyVmomi import vim

from hack.docgen.markdown import fenced_blocks
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter
from support.deployment_player import DEPLOYMENT
from support.info_client import write_credentials
from support.manager_process import (
    FREE_PORT_FLAGS,
    SERVICE_ACCOUNT,
    SYSTEM_NAMESPACE,
    ManagerProcess,
    list_mutations,
)
from support.pyvmomi_session import PyVmomiSession
from support.simulator_state import SimulatorState, read_simulator_state
from support.vmgroup_client import VmGroupClient

NAMESPACE = "upgrade"
# Longer than the 10 s after which a manager may take the clone of its predecessor for lost.
HANDOVER_SECONDS = 12.0
STATS_INTERVAL_SECONDS = 1
SOURCE_FOLDERS = ("src", "packages/kubewright/src", "packages/kubewright-api/src")
# Plurals with their groups, and the names of their controllers in metrics.
KINDS = {
    "hostinfoes.topology.corinternal.com": "hostinfo",
    "vminfoes.topology.corinternal.com": "vminfo",
    "fcdinfoes.topology.corinternal.com": "fcdinfo",
    "datastoreinfoes.topology.corinternal.com": "datastoreinfo",
    "clusterinfoes.topology.corinternal.com": "clusterinfo",
    "gpuinfoes.topology.corinternal.com": "gpuinfo",
    "vmgroups.vm.codeconnect.vmworld.com": "vmgroup",
    "mycustomresources.poc.test.domain": "mycustomresource",
}

# Kind in lower case and name.
ObjectId = tuple[str, str]


@dataclass(frozen=True)
class Release:
    """The files of one release: its sources, its manifests and its pages."""

    root: Path

    @property
    def environ(self) -> dict[str, str]:
        return {"PYTHONPATH": ":".join(str(self.root / folder) for folder in SOURCE_FOLDERS)}

    def read_commands(self, page: str, section: str, text: str) -> str:
        """The first block of a how-to page, below this heading, with this text."""
        pages = (self.root / "docs/howto" / page).read_text().split(f"\n## {section}\n")
        blocks = fenced_blocks(pages[1].split("\n## ")[0])
        return next(block.text for block in blocks if text in block.text)

    async def run_commands(self, plane: ControlPlane, commands: str) -> None:
        """Run commands of a page in this release's folder, with its own kubewright.

        They run with this Python instead of a new virtual environment.
        """
        make = f"make --no-print-directory VENV={sys.prefix} -o {sys.prefix}/ready"
        commands = commands.replace(".venv/bin/kubewright", f"{sys.executable} -m kubewright")
        commands = commands.replace("make deploy", f"{make} deploy")
        environ = {
            **os.environ,
            **self.environ,
            "KUBECONFIG": str(plane.admin_kubeconfig),
            "PATH": f"{plane.binaries['kubectl'].parent}:{os.environ['PATH']}",
            "HOME": str(plane.folder),
        }
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.root,
            env=environ,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, (commands, done.stdout, done.stderr)
        plane.wait_for_crds()


@dataclass(frozen=True)
class Snapshot:
    """All that an upgrade must not change."""

    objects: Mapping[ObjectId, dict[str, Any]]
    vcenter: SimulatorState
    # Of each VM, by its reference: it changes with each reconfiguration.
    change_versions: Mapping[str, str]
    # By object: reason and number of its Events.
    events: Mapping[str, Counter[str]]


@dataclass(frozen=True)
class UpgradeSite:
    plane: ControlPlane
    vcenter: SimulatedVCenter
    folder: Path

    @property
    def groups(self) -> VmGroupClient:
        return VmGroupClient(self.plane, NAMESPACE)

    @asynccontextmanager
    async def run(self, release: Release, name: str) -> AsyncIterator[ManagerProcess]:
        """A manager of the release that leads, as the service account of its manifests."""
        kubeconfig = self.plane.write_service_account_kubeconfig(
            SYSTEM_NAMESPACE, SERVICE_ACCOUNT, self.folder / f"{name}.kubeconfig"
        )
        flags = (
            f"--kubeconfig={kubeconfig}",
            f"--vcenter-credentials={write_credentials(self.folder / 'vc-creds', self.vcenter)}",
            f"--vcenter-ca-file={self.vcenter.certificate}",
            f"--stats-interval={STATS_INTERVAL_SECONDS}s",
            "--leader-elect",
            f"--leader-election-namespace={SYSTEM_NAMESPACE}",
            *FREE_PORT_FLAGS,
        )
        manager = ManagerProcess(self.folder / f"{name}.log", *flags, environ=release.environ)
        manager.start()
        try:
            # A predecessor that was killed holds the lease for 15 s.
            await manager.wait_for_log("Starting workers", within=60)
            yield manager
        finally:
            await manager.kill()

    def read_objects(self) -> dict[ObjectId, dict[str, Any]]:
        with self.plane.apiserver.admin_client() as https:
            return {
                (kind, obj["metadata"]["name"]): obj
                for plural, kind in KINDS.items()
                for obj in https.call("GET", _collection_path(plural))["items"]
            }

    def _get(self, path: str) -> dict[str, Any]:
        with self.plane.apiserver.admin_client() as https:
            return dict(https.call("GET", path))

    def read_stored_versions(self) -> dict[str, list[str]]:
        crds = self._get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
        return {
            crd["metadata"]["name"]: crd["status"]["storedVersions"]
            for crd in crds
            if crd["metadata"]["name"] in KINDS
        }

    def read_deployment(self) -> tuple[int, str]:
        """The replicas and the image of the manager's Deployment, which has no Pods here."""
        path = f"/apis/apps/v1/namespaces/{SYSTEM_NAMESPACE}/deployments/{DEPLOYMENT}"
        spec = self._get(path)["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        return spec["replicas"], container["image"]

    async def take_snapshot(self) -> Snapshot:
        path = f"/api/v1/namespaces/{NAMESPACE}/events"
        events = dict[str, Counter[str]]()
        for event in (await asyncio.to_thread(self._get, path))["items"]:
            series = event.get("series") or {}
            count = series.get("count") or event.get("count") or 1
            name = event["involvedObject"]["name"]
            events.setdefault(name, Counter())[event["reason"]] += count
        return Snapshot(
            objects=await asyncio.to_thread(self.read_objects),
            vcenter=await read_simulator_state(self.vcenter),
            change_versions=await self.read_change_versions(),
            events=events,
        )

    async def read_change_versions(self) -> dict[str, str]:
        refs = [vm.ref for vm in (await read_simulator_state(self.vcenter)).vms]

        def read(stub: Any) -> dict[str, str]:
            return {ref: vim.VirtualMachine(ref, stub).config.changeVersion for ref in refs}

        async with PyVmomiSession(self.vcenter) as session:
            return await asyncio.to_thread(read, session.instance._stub)

    async def wait_until_reconciled(self, manager: ManagerProcess) -> None:
        """Wait until the manager has reconciled every object, and has nothing to do."""
        objects = Counter(kind for kind, _ in await asyncio.to_thread(self.read_objects))

        async def is_idle() -> bool:
            reconciles, depths, active = await manager.read_metrics(
                "controller_runtime_reconcile_total",
                "workqueue_depth",
                "controller_runtime_active_workers",
            )
            for controller in KINDS.values():
                label = f'controller="{controller}"'
                count = sum(value for labels, value in reconciles.items() if label in labels)
                if count < objects[controller]:
                    return False
            return not any(depths.values()) and not any(active.values())

        await eventually(is_idle, within=60, every=0.2)

    def count_writes(self, manager: ManagerProcess) -> Counter[ObjectId]:
        """The writes of this manager by object, Events aside."""
        return Counter(
            (controller, str(reference["name"]))
            for event in list_mutations(self.plane, manager)
            if (reference := event["objectRef"])["resource"] != "events"
            for controller in [KINDS.get(f"{reference['resource']}.{reference['apiGroup']}", "")]
        )

    async def observe_rest(
        self, manager: ManagerProcess, seconds: float = HANDOVER_SECONDS
    ) -> Counter[ObjectId]:
        """The writes during these seconds."""
        before = self.count_writes(manager)
        await asyncio.sleep(seconds)
        return self.count_writes(manager) - before

    async def wait_for_rest(self, manager: ManagerProcess) -> None:
        """Wait until the statuses have all that the last change in vCenter causes."""
        await self.wait_until_reconciled(manager)

        async def is_at_rest() -> bool:
            return not await self.observe_rest(manager, 3 * STATS_INTERVAL_SECONDS)

        await eventually(is_at_rest, within=40)


def _collection_path(plural: str) -> str:
    name, _, group = plural.partition(".")
    version = "v1alpha1" if name == "vmgroups" else "v1"
    return f"/apis/{group}/{version}/namespaces/{NAMESPACE}/{name}"


def list_changed_fields(before: Any, after: Any, path: str = "") -> set[str]:
    """The paths of values that differ; entries of lists are named by their type, name or moRef."""
    if isinstance(before, dict) and isinstance(after, dict):
        names: Iterable[str] = before.keys() | after.keys()
        return {
            field
            for name in names
            for field in list_changed_fields(before.get(name), after.get(name), f"{path}.{name}")
        }
    if isinstance(before, list) and isinstance(after, list):
        return list_changed_fields(_by_key(before), _by_key(after), path)
    return set() if before == after else {path.removeprefix(".")}


def _by_key(entries: list[Any]) -> dict[str, Any]:
    return {
        str(next((entry[key] for key in ("type", "name", "moRef") if key in entry), number))
        if isinstance(entry, dict)
        else str(number): entry
        for number, entry in enumerate(entries)
    }
