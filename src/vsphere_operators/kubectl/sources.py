"""Reads objects from the cluster and, with --vcenter, inventory from the manager's vCenters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from copy import copy
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from kubewright import Client, Object
from kubewright.builtin import Node
from kubewright.errors import ConfigError, Forbidden, KindMissing
from kubewright.flags import parse_command_line
from kubewright.kubeconfig import Connection, load_config
from kubewright.responses import UndecodableObject
from kubewright.transport import Transport

from ..kinds.fcdinfo import FCDInfo
from ..kinds.gpuinfo.flags import GPUFlags
from ..kinds.gpuinfo.maintenance_windows import Calendar
from ..kinds.gpuinfo.node import build_facts, build_node_context
from ..kinds.gpuinfo.rules import NodeFacts
from ..kinds.gpuinfo.types import GPUInfo
from ..kinds.hostinfo import HostInfo
from ..kinds.vmgroup.types import VmGroup
from ..kinds.vminfo import VMInfo
from ..settings.flags import Settings
from ..vcenters import oneshot
from ..vcenters.node_matching import match_node
from ..vsphere.faults import Unreachable
from ..vsphere.vcenter import VCenter
from .inventory_rows import rows_from_inventory
from .rows import ClusterObjects, Rows

T = TypeVar("T", bound=Object)
# A busy vCenter takes some seconds to read the devices of a few hundred VMs.
_DETAILS_TIMEOUT_SECONDS = 20.0


class ClusterReader:
    """Reads objects; an empty namespace means all. `warn` receives what could not be read."""

    def __init__(self, connection: Connection, namespace: str, warn: Callable[[str], None]) -> None:
        self.transport = Transport(connection, user_agent="kubectl-vsphere")
        self.client = Client(self.transport, field_manager="kubectl-vsphere")
        self.namespace, self.warn = namespace, warn
        self.connection_namespace = connection.namespace

    def for_all_namespaces(self, warn: Callable[[str], None]) -> ClusterReader:
        """A reader of all namespaces, over the same connection."""
        reader = copy(self)
        reader.namespace, reader.warn = "", warn
        return reader

    async def list_readable(self, kind: type[T]) -> list[T]:
        """All objects of a kind; empty, with a warning, if forbidden or not installed.

        Objects that cannot be decoded are left out with a warning: they must not hide the others.
        """
        items: list[T | UndecodableObject] = []
        namespace = self.namespace if kind.definition.namespaced else ""
        try:
            async for page in self.client.list_pages(kind, namespace):
                items += page.items
        except (Forbidden, KindMissing) as error:
            self.warn(f"skipped: {error}")
            return []
        undecodable = [item for item in items if isinstance(item, UndecodableObject)]
        if undecodable:
            first, count = undecodable[0], len(undecodable)
            more = f" and {count - 1} more" if count > 1 else ""
            name = f"{kind.definition.name} {first.metadata.key}{more}"
            self.warn(f"skipped: {name}: {first.message}")
        return [item for item in items if not isinstance(item, UndecodableObject)]

    async def read_objects(self) -> ClusterObjects:
        hosts, vms, disks, gpus, groups, nodes = await asyncio.gather(
            self.list_readable(HostInfo),
            self.list_readable(VMInfo),
            self.list_readable(FCDInfo),
            self.list_readable(GPUInfo),
            self.list_readable(VmGroup),
            self.list_readable(Node),
        )
        return ClusterObjects(
            hosts=hosts, vms=vms, disks=disks, gpus=gpus, groups=groups, nodes=nodes
        )


def load_connection(kubeconfig: str, context: str, environ: Mapping[str, str]) -> Connection:
    """From the same places as kubectl; reads files, so it blocks."""
    return load_config(
        kubeconfig, "", context, environ=environ, home=Path(environ.get("HOME", "/"))
    )


@asynccontextmanager
async def open_vcenters(
    flags: Sequence[str], environ: Mapping[str, str], warn: Callable[[str], None]
) -> AsyncIterator[list[VCenter]]:
    """All vCenters of the manager's environment variables and these flags, with their inventory."""
    settings = parse_command_line(Settings, flags, environ, program="kubectl vsphere")
    configs = await asyncio.to_thread(settings.read_vcenter_configs, warn)
    if not configs:
        raise ConfigError(
            "--vcenter: no vCenter is configured. Set GOVMOMI_URL, GOVMOMI_USERNAME and "
            "GOVMOMI_PASSWORD (or VC_HOST, VC_USER and VC_PASS), or use --vcenters."
        )
    async with AsyncExitStack() as stack:
        vcenters = [
            await stack.enter_async_context(oneshot.temporary_vcenter(config)) for config in configs
        ]
        # One after the other: a wrong password is reported for the first vCenter that rejects it.
        for vcenter in vcenters:
            await vcenter.session.login()
            await oneshot.load_inventory(vcenter)
        yield vcenters


async def rows_from_vcenters(
    vcenters: Sequence[VCenter], nodes: Sequence[Node], from_objects: Rows
) -> Rows:
    """The rows of all vCenters; the VmGroup of a VM and the claim of a disk come from objects."""
    rows_by_vcenter = []
    for vcenter in vcenters:
        await vcenter.disks.poll()
        rows_by_vcenter.append(
            rows_from_inventory(vcenter.inventory, list(vcenter.disks.disks.values()), nodes)
        )
    groups = {(row.vcenter, row.name): row.group for row in from_objects.vms if row.group}
    claims = {row.name: row.claim for row in from_objects.disks}
    return Rows(
        hosts=[row for rows in rows_by_vcenter for row in rows.hosts],
        vms=[
            replace(row, group=groups.get((row.vcenter, row.name), ""))
            for rows in rows_by_vcenter
            for row in rows.vms
        ],
        disks=[
            replace(row, claim=claims.get(row.name, ""))
            for rows in rows_by_vcenter
            for row in rows.disks
        ],
        # A Node runs in one vCenter, so it is unmatched only if no vCenter has its VM.
        unmatched=[
            node.metadata.name
            for node in nodes
            if all(node.metadata.name in rows.unmatched for rows in rows_by_vcenter)
        ],
    )


async def read_node_facts(
    vcenters: Sequence[VCenter], nodes: Sequence[Node], now: datetime
) -> dict[str, NodeFacts]:
    """The facts of each Node as the manager reads them, without its maintenance calendar."""
    matches = {node.metadata.name: match_node(node, vcenters) for node in nodes}
    for vcenter in vcenters:
        for match in matches.values():
            if match.vcenter is vcenter and match.vm is not None:
                vcenter.passthrough_devices.request_refresh(match.vm.ref)
        await _read_details(vcenter)
    # The flags of the running manager are unknown here; these are its defaults.
    resources = GPUFlags().gpu_resource_globs
    facts = {}
    for node in nodes:
        name = node.metadata.name
        context = build_node_context(name, matches[name], Calendar(), needs_devices=True)
        facts[name] = build_facts(node, context, resources, None, now)
    return facts


async def _read_details(vcenter: VCenter) -> None:
    """Reads the requested devices and the scheduled tasks."""
    try:
        await asyncio.wait_for(
            asyncio.gather(vcenter.passthrough_devices.poll(), vcenter.scheduled_tasks.poll()),
            _DETAILS_TIMEOUT_SECONDS,
        )
    except TimeoutError:
        raise Unreachable(
            f"vCenter {vcenter.name} did not return the devices of its VMs within "
            f"{_DETAILS_TIMEOUT_SECONDS:.0f} s; try again when it is less busy"
        ) from None
