"""VmGroups through the API server, and their VMs in the simulator."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kubewright.testing import eventually
from kubewright.testing.cluster_access import HttpError
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter

from .manager_process import ready_condition
from .simulator_state import SimulatorVm, read_simulator_state

VMGROUP_API_VERSION = "vm.codeconnect.vmworld.com/v1alpha1"
TEMPLATE = "vm-operator-template"
PARENT_FOLDER = "/DC0/vm/vm-operator"
SUCCESS_MESSAGE = "successfully reconciled VmGroup"
MERGE_PATCH_HEADERS = {"Content-Type": "application/merge-patch+json"}


@dataclass(frozen=True)
class VmGroupClient:
    """The VmGroups of one namespace."""

    control_plane: ControlPlane
    namespace: str

    def path(self, name: str = "") -> str:
        """The URL path of one group, or of all."""
        return f"/apis/{VMGROUP_API_VERSION}/namespaces/{self.namespace}/vmgroups" + (
            f"/{name}" if name else ""
        )

    async def call(
        self, verb: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """One call as administrator, without any proxy."""

        def work() -> Any:
            with self.control_plane.apiserver.admin_client() as https:
                return https.call(verb, path, body, headers)

        return await asyncio.to_thread(work)

    async def create(self, name: str, **spec: Any) -> dict[str, Any]:
        """Create a group with the spec of the sample vg-1, changed by `spec`."""
        full = {"cpu": 1, "memory": 1, "replicas": 3, "template": TEMPLATE, **spec}
        return dict(
            await self.call(
                "POST",
                self.path(),
                {
                    "apiVersion": VMGROUP_API_VERSION,
                    "kind": "VmGroup",
                    "metadata": {"name": name},
                    "spec": full,
                },
            )
        )

    async def get(self, name: str) -> dict[str, Any]:
        return dict(await self.call("GET", self.path(name)))

    async def find(self, name: str) -> dict[str, Any] | None:
        """The group, None if it does not exist."""
        try:
            return await self.get(name)
        except HttpError as error:
            if error.status != 404:
                raise
            return None

    async def patch_spec(self, name: str, **spec: Any) -> None:
        await self.call("PATCH", self.path(name), {"spec": spec}, MERGE_PATCH_HEADERS)

    async def delete(self, name: str) -> None:
        await self.call("DELETE", self.path(name))

    async def wait_until_deleted(self, name: str, *, within: float = 60) -> None:

        async def absent() -> bool:
            return await self.find(name) is None

        try:
            await eventually(absent, within=within, every=0.05)
        except AssertionError:
            raise AssertionError(
                f"the VmGroup {name} still exists: {await self.find(name)}"
            ) from None

    async def wait_for_phase(
        self, name: str, phase: str, *, within: float = 60, predicate: Callable[[Any], Any] = bool
    ) -> dict[str, Any]:
        """The status, once it has this phase for the current generation and the predicate holds."""

        async def status_with_phase() -> dict[str, Any] | None:
            group = await self.get(name)
            return (
                group["status"] if has_phase(group, phase) and predicate(group["status"]) else None
            )

        try:
            return await eventually(status_with_phase, within=within, every=0.05) or {}
        except AssertionError:
            raise AssertionError(
                f"the VmGroup {name} did not become {phase}: {(await self.get(name)).get('status')}"
            ) from None


def has_phase(group: Mapping[str, Any], phase: str) -> bool:
    """Whether a group has this phase for its current generation."""
    status = group.get("status", {})
    current = (
        ready_condition(dict(group)).get("observedGeneration") == group["metadata"]["generation"]
    )
    return bool(current and status.get("phase") == phase)


def is_running(group: Mapping[str, Any]) -> bool:
    """Whether the status reports the desired state."""
    status, replicas = group.get("status", {}), group["spec"]["replicas"]
    counts = status.get("currentReplicas", 0), status.get("desiredReplicas")
    return (
        has_phase(group, "RUNNING")
        and counts == (replicas, replicas)
        and status.get("lastMessage") == SUCCESS_MESSAGE
    )


def group_folder_path(namespace: str, name: str) -> str:
    """The inventory path of a group's folder, as in the original operator."""
    return f"{PARENT_FOLDER}/{namespace}-{name}"


async def list_group_vms(vcenter: SimulatedVCenter, uid: str) -> list[SimulatorVm]:
    """The VMs with the mark of this group, including copies of the mark."""
    return [
        vm
        for vm in (await read_simulator_state(vcenter)).vms
        if vm.marks.get("vsphere-operators.uid") == uid
    ]


def has_replica_name(group: str, vm: SimulatorVm) -> bool:
    """Whether a VM has a name as in the original operator."""
    return re.fullmatch(rf"{re.escape(group)}-replica-[a-z]{{8}}", vm.name) is not None
