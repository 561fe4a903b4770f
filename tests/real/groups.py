"""VmGroups as a user sees them through the API server, and their VMs as the simulator has them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.http import HttpError
from simulator import SimulatedVCenter

from .managing import ready_of
from .snapshot import Machine, snapshot

API = "vm.codeconnect.vmworld.com/v1alpha1"
TEMPLATE = "vm-operator-template"
PARENT = "/DC0/vm/vm-operator"
SUCCESS = "successfully reconciled VmGroup"
MERGE = {"Content-Type": "application/merge-patch+json"}


@dataclass(frozen=True)
class Groups:
    """The VmGroups of one namespace."""

    plane: ControlPlane
    namespace: str

    def path(self, name: str = "") -> str:
        """The URL path of one group, or of all."""
        return f"/apis/{API}/namespaces/{self.namespace}/vmgroups" + (f"/{name}" if name else "")

    async def call(
        self, verb: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """One call as administrator, past every proxy."""

        def work() -> Any:
            with self.plane.apiserver.admin_client() as https:
                return https.call(verb, path, body, headers)

        return await asyncio.to_thread(work)

    async def create(self, name: str, **spec: Any) -> dict[str, Any]:
        """A group; what is not given is as in the sample vg-1."""
        full = {"cpu": 1, "memory": 1, "replicas": 3, "template": TEMPLATE, **spec}
        return dict(
            await self.call(
                "POST",
                self.path(),
                {"apiVersion": API, "kind": "VmGroup", "metadata": {"name": name}, "spec": full},
            )
        )

    async def get(self, name: str) -> dict[str, Any]:
        """The group."""
        return dict(await self.call("GET", self.path(name)))

    async def find(self, name: str) -> dict[str, Any] | None:
        """The group, None where there is none."""
        try:
            return await self.get(name)
        except HttpError as refused:
            if refused.status != 404:
                raise
            return None

    async def change(self, name: str, **spec: Any) -> None:
        """Merge into the spec."""
        await self.call("PATCH", self.path(name), {"spec": spec}, MERGE)

    async def delete(self, name: str) -> None:
        """Ask for its deletion."""
        await self.call("DELETE", self.path(name))

    async def gone(self, name: str, *, within: float = 60) -> None:
        """Wait until it is no more."""

        async def absent() -> bool:
            return await self.find(name) is None

        try:
            await eventually(absent, within=within, every=0.05)
        except AssertionError:
            raise AssertionError(
                f"the VmGroup {name} is still there: {await self.find(name)}"
            ) from None

    async def becomes(
        self, name: str, phase: str, *, within: float = 60, where: Callable[[Any], Any] = bool
    ) -> dict[str, Any]:
        """The status, once it has this phase for the present generation and `where` is content with it."""

        async def there() -> dict[str, Any] | None:
            found = await self.get(name)
            return found["status"] if has_phase(found, phase) and where(found["status"]) else None

        try:
            return await eventually(there, within=within, every=0.05) or {}
        except AssertionError:
            raise AssertionError(
                f"the VmGroup {name} did not become {phase}: {(await self.get(name)).get('status')}"
            ) from None


def has_phase(group: Mapping[str, Any], phase: str) -> bool:
    """Whether a group has this phase, and not still from an older generation."""
    status = group.get("status", {})
    current = ready_of(dict(group)).get("observedGeneration") == group["metadata"]["generation"]
    return bool(current and status.get("phase") == phase)


def is_running(group: Mapping[str, Any]) -> bool:
    """Whether a group claims to be as its spec says."""
    status, replicas = group.get("status", {}), group["spec"]["replicas"]
    counts = status.get("currentReplicas", 0), status.get("desiredReplicas")
    return (
        has_phase(group, "RUNNING")
        and counts == (replicas, replicas)
        and status.get("lastMessage") == SUCCESS
    )


def folder_of(namespace: str, name: str) -> str:
    """The inventory path of a group's folder, by the contract."""
    return f"{PARENT}/{namespace}-{name}"


async def vms_of(vcenter: SimulatedVCenter, uid: str) -> list[Machine]:
    """The VMs with the mark of this group, copies of the mark too."""
    return [
        each
        for each in (await snapshot(vcenter)).vms
        if each.marks.get("vsphere-operators.uid") == uid
    ]


def well_named(group: str, vm: Machine) -> bool:
    """Whether a VM has the name that the contract gives it."""
    return re.fullmatch(rf"{re.escape(group)}-replica-[a-z]{{8}}", vm.name) is not None
