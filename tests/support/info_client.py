"""Info objects on a real API server with a simulated vCenter: what their tests share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from simulator import SimulatedVCenter

from .manager_process import FREE_PORT_FLAGS, ManagerProcess, ready_condition, run_manager

TOPOLOGY_API_VERSION = "topology.corinternal.com/v1"
PLURALS = {
    "HostInfo": "hostinfoes",
    "VMInfo": "vminfoes",
    "FCDInfo": "fcdinfoes",
    "DatastoreInfo": "datastoreinfoes",
    "ClusterInfo": "clusterinfoes",
}
SPEC_FIELDS = {
    "HostInfo": "hostname",
    "VMInfo": "nodename",
    "FCDInfo": "pvId",
    "DatastoreInfo": "datastore",
    "ClusterInfo": "cluster",
}


@dataclass(frozen=True)
class InfoClient:
    """Writes and reads the info objects of one namespace as a user would."""

    control_plane: ControlPlane
    namespace: str

    def path(self, kind: str, name: str = "") -> str:
        return f"/apis/{TOPOLOGY_API_VERSION}/namespaces/{self.namespace}/{PLURALS[kind]}" + (
            f"/{name}" if name else ""
        )

    async def call(
        self, verb: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        def work() -> Any:
            with self.control_plane.apiserver.admin_client() as https:
                return https.call(verb, path, body, headers)

        return await asyncio.to_thread(work)

    async def create(self, kind: str, name: str, target: str | None) -> None:
        """`target` is the name of the host, VM or disk; None omits the spec."""
        spec = {} if target is None else {"spec": {SPEC_FIELDS[kind]: target}}
        await self.call(
            "POST",
            self.path(kind),
            {"apiVersion": TOPOLOGY_API_VERSION, "kind": kind, "metadata": {"name": name}, **spec},
        )

    async def get(self, kind: str, name: str) -> dict[str, Any]:
        return dict(await self.call("GET", self.path(kind, name)))

    async def patch(self, kind: str, name: str, patch: Mapping[str, Any]) -> None:
        await self.call(
            "PATCH", self.path(kind, name), patch, {"Content-Type": "application/merge-patch+json"}
        )

    async def wait_for_status(
        self,
        kind: str,
        name: str,
        reason: str = "Reconciled",
        *,
        within: float = 60,
        predicate: Callable[[Any], Any] = bool,
    ) -> Any:
        """Wait until Ready has this reason for the current generation, and the predicate holds."""

        async def find_status() -> dict[str, Any] | None:
            obj = await self.get(kind, name)
            ready, status = ready_condition(obj), obj.get("status", {})
            current = ready.get("observedGeneration") == obj["metadata"]["generation"]
            return (
                status if ready.get("reason") == reason and current and predicate(status) else None
            )

        try:
            return await eventually(find_status, within=within)
        except AssertionError:
            raise AssertionError(
                f"{kind} {name} did not become {reason}: {await self.get(kind, name)}"
            ) from None


def without_conditions(status: Mapping[str, Any]) -> dict[str, Any]:
    return {
        field: value
        for field, value in status.items()
        if field not in ("conditions", "observedGeneration")
    }


def write_credentials(folder: Path, vcenter: SimulatedVCenter, **other: str) -> Path:
    """Create a directory like that of a mounted Secret vc-creds."""
    folder.mkdir(exist_ok=True)
    url = vcenter.url
    for key, text in {
        "GOVMOMI_URL": url,
        "GOVMOMI_USERNAME": vcenter.user,
        "GOVMOMI_PASSWORD": vcenter.password,
        **other,
    }.items():
        (folder / key).write_text(text)
    return folder


@asynccontextmanager
async def run_vcenter_manager(
    log: Path, kubeconfig: Path, credentials: Path, certificate: Path, *flags: str
) -> AsyncIterator[ManagerProcess]:
    """Run a manager that has logged in to its vCenter."""
    vcenter_flags = (
        f"--vcenter-credentials={credentials}",
        f"--vcenter-ca-file={certificate}",
        "--zap-log-level=debug",
    )
    async with run_manager(
        log, f"--kubeconfig={kubeconfig}", *FREE_PORT_FLAGS, *vcenter_flags, *flags
    ) as manager:
        await manager.wait_for_log("logged in", within=30)
        yield manager
