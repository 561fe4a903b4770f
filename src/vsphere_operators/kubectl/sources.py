"""Where the commands' answers come from: the cluster's objects, and with --vcenter the vCenters that the manager's variables name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from kubewright import Client, Object
from kubewright.builtin import Node
from kubewright.errors import ConfigError, Forbidden, KindMissing
from kubewright.flags import parse_command_line
from kubewright.kubeconfig import Connection, load_config
from kubewright.transport import Transport

from ..kinds.fcdinfo import FCDInfo
from ..kinds.gpuinfo.matching import Match, match_node
from ..kinds.gpuinfo.node import NodeContext, build_facts
from ..kinds.gpuinfo.options import GPUFlags
from ..kinds.gpuinfo.rules import NodeFacts
from ..kinds.gpuinfo.types import GPUInfo
from ..kinds.hostinfo import HostInfo
from ..kinds.vmgroup.types import VmGroup
from ..kinds.vminfo import VMInfo
from ..settings.flags import Settings
from ..vcenters import oneshot
from ..vcenters.registry import CONFIGURATION_HINT
from ..vsphere.faults import Unreachable
from ..vsphere.vcenter import VCenter
from .live import rows_from_inventory
from .rows import ClusterObjects, Rows

T = TypeVar("T", bound=Object)
_DETAILS_TIMEOUT_SECONDS = 20.0


class Cluster:
    """The cluster of a kubeconfig."""

    def __init__(self, connection: Connection, namespace: str, warn: Callable[[str], None]) -> None:
        """An empty namespace is all of them; `note` gets what could not be read."""
        self.transport = Transport(connection, user_agent="kubectl-vsphere")
        self.client, self.namespace, self.warn = (
            Client(self.transport, field_manager="kubectl-vsphere"),
            namespace,
            warn,
        )

    async def list_readable(self, kind: type[T]) -> list[T]:
        """All of a kind; what may not be read, or is not installed, is left out and said."""
        try:
            return await self.client.list(
                kind, self.namespace if kind.definition.namespaced else ""
            )
        except (Forbidden, KindMissing) as error:
            self.warn(f"left out: {error}")
            return []

    async def read_objects(self) -> ClusterObjects:
        """All that rows are made of."""
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
    """As kubectl finds it; it reads files."""
    return load_config(
        kubeconfig, "", context, environ=environ, home=Path(environ.get("HOME", "/"))
    )


@asynccontextmanager
async def open_vcenters(
    flags: Sequence[str], environ: Mapping[str, str], warn: Callable[[str], None]
) -> AsyncIterator[list[VCenter]]:
    """All vCenters that the manager's variables and these of its flags name, loaded."""
    configs = await asyncio.to_thread(
        parse_command_line(
            Settings, flags, environ, program="kubectl vsphere"
        ).read_vcenter_configs,
        warn,
    )
    if not configs:
        raise ConfigError(
            f"--vcenter: no vCenter is named. {CONFIGURATION_HINT.replace(' for the manager', '')}."
        )
    async with AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(oneshot.temporary_vcenter(config)) for config in configs
        ]
        for vcenter in opened:
            await vcenter.session.login()
            await oneshot.load_inventory(vcenter)
        yield opened


async def rows_from_vcenters(opened: Sequence[VCenter], nodes: Sequence[Node], told: Rows) -> Rows:
    """What the vCenters have, together, with the groups and claims that only objects tell. A Node is unmatched if none has its VM."""
    parts = []
    for vcenter in opened:
        await vcenter.disks.poll()
        parts.append(
            rows_from_inventory(vcenter.inventory, list(vcenter.disks.disks.values()), nodes)
        )
    groups = {(row.vcenter, row.name): row.group for row in told.vms if row.group}
    claims = {row.name: row.claim for row in told.disks}
    return Rows(
        hosts=[row for part in parts for row in part.hosts],
        vms=[
            replace(row, group=groups.get((row.vcenter, row.name), ""))
            for part in parts
            for row in part.vms
        ],
        disks=[
            replace(row, claim=claims.get(row.name, "")) for part in parts for row in part.disks
        ],
        unmatched=[
            name for name in parts[0].unmatched if all(name in part.unmatched for part in parts)
        ]
        if parts
        else [],
    )


async def read_node_facts(
    opened: Sequence[VCenter], nodes: Sequence[Node], now: datetime
) -> dict[str, NodeFacts]:
    """The facts of each Node as the manager finds them, its calendar apart."""
    matches = {node.metadata.name: match_node(node, opened) for node in nodes}
    for vcenter in opened:
        refs = [
            each.vm.ref
            for each in matches.values()
            if each.vcenter is vcenter and each.vm is not None
        ]
        for ref in refs:
            vcenter.passthrough_devices.request_refresh(ref)
        await _read_details(vcenter)
    resources = GPUFlags().gpu_resource_globs
    return {
        node.metadata.name: build_facts(
            node, build_node_context(matches[node.metadata.name]), resources, None, now
        )
        for node in nodes
    }


async def _read_details(vcenter: VCenter) -> None:
    """Read the devices that are wanted, and what is planned."""
    try:
        await asyncio.wait_for(
            asyncio.gather(vcenter.passthrough_devices.poll(), vcenter.scheduled_tasks.poll()),
            _DETAILS_TIMEOUT_SECONDS,
        )
    except TimeoutError:
        words = f"vCenter {vcenter.name} did not tell the devices of its VMs within {_DETAILS_TIMEOUT_SECONDS:.0f} s; try again when it has less to do"
        raise Unreachable(words) from None


def build_node_context(found: Match) -> NodeContext:
    """A Node's VM and all that comes with it."""
    vcenter, vm = found.vcenter, found.vm
    if vcenter is None or vm is None:
        return NodeContext(blocker=found.blocker)
    host, planned = (
        vcenter.inventory.hosts.get(vm.host),
        vcenter.scheduled_tasks.get(vm.host) if vm.host else (),
    )
    return NodeContext(
        vcenter_name=vcenter.name,
        vm=vm,
        host=host,
        devices=vcenter.passthrough_devices.get(vm.ref) or (),
        scheduled_maintenance=planned,
    )
