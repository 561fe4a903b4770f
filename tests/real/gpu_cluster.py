"""Nodes and GPUInfos on a real API server: what the tests of GPUInfo share."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane
from support.manager_process import ready_condition

GPUINFOS_PATH = "/apis/topology.corinternal.com/v1/namespaces/{namespace}/gpuinfoes"
NEXT_MAINTENANCE_ANNOTATION = "topology.corinternal.com/next-maintenance"
MERGE_PATCH_HEADERS = {"Content-Type": "application/merge-patch+json"}
NODE_UUIDS = {
    f"worker-{number}": f"42030000-0000-4000-8000-00000000000{number}" for number in range(1, 5)
}
NONE_AVAILABLE = "None available"


class GpuCluster:
    """Writes Nodes and GPUInfos, and waits for statuses, as a user would."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.control_plane, self.namespace = plane, namespace
        self.selection_seconds: list[float] = []

    async def call(self, verb: str, path: str, body: Any = None, headers: Any = None) -> Any:
        def work() -> Any:
            with self.control_plane.apiserver.admin_client() as https:
                return https.call(verb, path, body, headers)

        return await asyncio.to_thread(work)

    async def add_node(self, name: str, provider_id: str) -> None:
        await self.call(
            "POST",
            "/api/v1/nodes",
            {"metadata": {"name": name}, "spec": {"providerID": provider_id}},
        )
        await self.patch_node_status(name, ready="True")
        # The API server taints a new Node not-ready; kube-controller-manager, which does not run
        # here, would remove the taint.
        await self.patch_node(name, {"spec": {"taints": None}})

    async def patch_node_status(self, name: str, ready: str, **other: Any) -> None:
        status = {"conditions": [{"type": "Ready", "status": ready}], **other}
        await self.call(
            "PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, MERGE_PATCH_HEADERS
        )

    async def patch_node(self, name: str, patch: Any) -> None:
        await self.call("PATCH", f"/api/v1/nodes/{name}", patch, MERGE_PATCH_HEADERS)

    async def remove_nodes(self) -> None:
        for node in (await self.call("GET", "/api/v1/nodes"))["items"]:
            await self.call("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")

    async def create_gpuinfo(self, name: str, hours: int, gpu: bool) -> None:
        body = {
            "apiVersion": "topology.corinternal.com/v1",
            "kind": "GPUInfo",
            "metadata": {"name": name},
        }
        await self.call(
            "POST",
            GPUINFOS_PATH.format(namespace=self.namespace),
            {**body, "spec": {"desAccTime": hours, "gpuRequired": gpu}},
        )

    async def patch_gpuinfo(self, name: str, patch: Any) -> None:
        await self.call(
            "PATCH",
            f"{GPUINFOS_PATH.format(namespace=self.namespace)}/{name}",
            patch,
            MERGE_PATCH_HEADERS,
        )

    async def wait_for_event(self, reason: str, namespace: str) -> None:
        """Wait for an Event of this reason; those about Nodes are in `default`."""

        async def has_event() -> bool:
            events = await self.call("GET", f"/api/v1/namespaces/{namespace}/events")
            return any(event["reason"] == reason for event in events["items"])

        await eventually(has_event, within=60)

    async def get_status(self, name: str) -> Any:
        return (
            await self.call("GET", f"{GPUINFOS_PATH.format(namespace=self.namespace)}/{name}")
        ).get("status", {})

    async def wait_for_node(self, name: str, node: str, *, within: float = 60) -> Any:
        async def find_status() -> Any:
            status = await self.get_status(name)
            return status if status.get("suitableNodeName") == node else None

        try:
            return await eventually(find_status, within=within)
        except AssertionError:
            raise AssertionError(
                f"{name} did not become {node}: {await self.get_status(name)}"
            ) from None

    async def wait_for_ready(self, name: str, reason: str, *, within: float = 60) -> Any:
        """Wait for the Ready condition to have this reason."""

        async def find_status() -> Any:
            condition = ready_condition({"status": await self.get_status(name)})
            return condition if condition.get("reason") == reason else None

        try:
            return await eventually(find_status, within=within)
        except AssertionError:
            raise AssertionError(
                f"{name} did not become {reason}: {await self.get_status(name)}"
            ) from None

    async def wait_for_rejections(self, name: str, within: float = 60, **counts: int) -> Any:
        """Wait for the status to count exactly these rejections."""

        async def find_status() -> Any:
            status = await self.get_status(name)
            return status if status.get("refused", {}) == counts else None

        try:
            return await eventually(find_status, within=within)
        except AssertionError:
            raise AssertionError(
                f"{name} did not count {counts}: {await self.get_status(name)}"
            ) from None

    async def time_selection(self, name: str, node: str) -> Any:
        """Wait for the selection, and record how long it took."""
        started_at = time.monotonic()
        status = await self.wait_for_node(name, node, within=60)
        self.selection_seconds.append(time.monotonic() - started_at)
        return status


def timestamp_in_hours(hours: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + hours * 3600))
