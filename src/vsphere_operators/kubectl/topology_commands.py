"""`what-if`, `datastores`, `orphans`, `events` and `open`: commands that read the topology.

The source is the page of the manager or, with --vcenter, the vCenters and the API server. Only the
manager knows what happened before, so `events` and `open` need its page.
"""

from __future__ import annotations

import argparse
import asyncio
import webbrowser
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol
from urllib.parse import quote

from kubewright.builtin import Node, PersistentVolume, Pod
from kubewright.errors import ConfigError

from ..kinds.vmgroup.types import VmGroup
from ..topology import model
from ..topology.cluster_objects import PodDisruptionBudget
from ..topology.collect import collect_topology
from ..topology.store import store_of
from ..topology.what_if import Inventory, WhatIf, find_affected
from ..vsphere.vcenter import VCenter
from . import manager_pods, page
from .rows import Rows
from .sources import ClusterReader
from .table import Table, render_table
from .topology_tables import (
    datastore_table,
    event_table,
    list_datastores,
    list_orphans,
    orphan_table,
    render_what_if,
    rows_from_topology,
    select_node_changes,
)

PAGE_VARIABLE = "KUBECTL_VSPHERE_PAGE"
_RECONNECT_SECONDS = 2.0
TOPOLOGY_COMMANDS = ("what-if", "datastores", "orphans", "events", "open")


def add_topology_parsers(commands: Any, shared: argparse.ArgumentParser) -> None:
    """Add the commands to the subparsers of argparse."""
    command = commands.add_parser(
        "what-if",
        parents=[shared],
        help="Show what stops if a host goes: nodes, Pods, volumes, VmGroups.",
    )
    command.add_argument("what", choices=("host",), metavar="host")
    command.add_argument("host", metavar="NAME", help="Name or id of the host.")
    commands.add_parser(
        "datastores", parents=[shared], help="Display datastores by free space, with their use."
    )
    commands.add_parser(
        "orphans",
        parents=[shared],
        help="List First Class Disks that no PersistentVolume of this cluster names: orphaned if "
        "no VM uses them, else foreign. Both may belong to another cluster.",
    )
    command = commands.add_parser(
        "events",
        parents=[shared],
        help="Show vMotions, restarts, power and maintenance of the nodes' VMs and hosts in the "
        "last hour.",
    )
    command.add_argument(
        "--all", action="store_true", help="Show the events of all VMs, hosts and VmGroups."
    )
    command = commands.add_parser(
        "open", parents=[shared], help="Forward a port to the page and open it in a browser."
    )
    command.add_argument(
        "--no-browser", action="store_true", help="Only print the address of the page."
    )


def add_page_flags(add: Callable[..., Any]) -> None:
    """The flags that find the page; `add` is that of a parser."""
    add(
        "--page",
        metavar="URL",
        help=f"Address of the manager's page. Default: ${PAGE_VARIABLE}, or by port-forward.",
    )
    add(
        "--manager-namespace",
        metavar="NAME",
        help=f"Namespace of the manager. Default: {manager_pods.DEFAULT_NAMESPACE}.",
    )


class TextOptions(Protocol):
    """What the text of a command depends on."""

    @property
    def wide(self) -> bool: ...
    @property
    def width(self) -> int: ...
    @property
    def color(self) -> bool: ...


class TopologyCommands:
    """`run` returns the value for JSON and YAML, and what renders it as text."""

    def __init__(
        self,
        options: argparse.Namespace,
        cluster: ClusterReader,
        environ: Mapping[str, str],
        open_vcenters: Callable[[], AbstractAsyncContextManager[list[VCenter]]],
    ) -> None:
        self._options, self._cluster, self._environ = options, cluster, environ
        self._open_vcenters = open_vcenters

    async def run(self, printer: TextOptions) -> tuple[object, Callable[[], str]]:
        match self._options.command:
            case "what-if":
                result = await self._what_if()
                lines = render_what_if(result, width=printer.width, color=printer.color)
                return result, lambda: "\n".join(lines)
            case "datastores":
                datastores = list_datastores(await self._read_topology())
                return datastores, partial(
                    _render, datastore_table(datastores, wide=printer.wide), printer
                )
            case "orphans":
                orphans = list_orphans(await self._read_topology())
                return orphans, partial(_render, orphan_table(orphans, wide=printer.wide), printer)
            case "events":
                changes = await self._read_changes()
                table = event_table(changes.changes, wide=printer.wide)
                since = f"No events since {changes.since:%Y-%m-%dT%H:%M:%SZ}."
                return changes, lambda: _render(table, printer, since)
            case _:
                await self._open()
                return {}, str

    async def read_rows(self) -> Rows | None:
        """The rows of `tree`; None if the manager serves no page."""
        try:
            manager_page = None
            if not self._options.page:
                manager_page = await self._find_page()
                if manager_page is None or manager_page.scheme != "http":
                    return None
            async with self._open_page(manager_page) as opened:
                return rows_from_topology(
                    await page.read_page(opened.address, "/topology", model.Topology)
                )
        except ConfigError as error:
            if self._options.page:
                raise
            self._cluster.warn(f"skipped: {error}")
            return None

    async def _what_if(self) -> WhatIf:
        name = self._options.host
        if not self._options.vcenter:
            async with self._open_page() as opened:
                topology = await page.read_page(opened.address, "/topology", model.Topology)
                host = _find_host(topology.hosts, name)
                path = f"/topology/what-if/hosts/{quote(host.id)}"
                return await page.read_page(opened.address, path, WhatIf)
        topology = await self._read_from_vcenters()
        problems = list[str]()
        # The Pods of all namespaces run on a host, whatever -n is.
        everywhere = self._cluster.for_all_namespaces(problems.append)
        pods, budgets = await asyncio.gather(
            everywhere.list_readable(Pod), everywhere.list_readable(PodDisruptionBudget)
        )
        inventory = Inventory(
            vcenters=topology.vcenters,
            vms={item.id: item for item in topology.vms},
            nodes={item.id: item for item in topology.nodes},
            disks=topology.disks,
            datastores={item.id: item for item in topology.datastores},
            groups={item.id: item for item in topology.vmGroups},
            limits=topology.limits,
        )
        host = _find_host(topology.hosts, name)
        return find_affected(host, inventory, pods, budgets, datetime.now(UTC), problems)

    async def _read_topology(self) -> model.Topology:
        if self._options.vcenter:
            return await self._read_from_vcenters()
        async with self._open_page() as opened:
            return await page.read_page(opened.address, "/topology", model.Topology)

    async def _read_changes(self) -> model.Changes:
        """Those of Nodes, or all with --all."""
        if self._options.vcenter:
            raise ConfigError(
                "events cannot be read with --vcenter: only the manager has seen them. "
                "Remove --vcenter."
            )
        async with self._open_page() as opened:
            changes = await page.read_page(opened.address, "/topology/changes", model.Changes)
            if self._options.all:
                return changes
            topology = await page.read_page(opened.address, "/topology", model.Topology)
        return model.Changes(
            since=changes.since,
            limit=changes.limit,
            changes=select_node_changes(changes.changes, topology),
        )

    async def _open(self) -> None:
        """Serve the page on a port of this machine until a signal, also of the next manager."""
        port = 0
        # Ctrl-C and SIGTERM cancel the command, and so end kubectl. That is how `open` ends.
        with suppress(asyncio.CancelledError):
            while True:
                try:
                    async with self._open_page(local_port=port) as opened:
                        if not port:
                            await self._show(opened.address)
                        # The same port again: the page in the browser continues.
                        port = opened.port
                        await opened.ended.wait()
                except ConfigError as error:
                    if not port:
                        raise
                    self._cluster.warn(f"waiting for the manager: {error}")
                await asyncio.sleep(_RECONNECT_SECONDS)

    async def _show(self, address: str) -> None:
        print(f"The page is at {address}/ (press Ctrl-C to stop)", flush=True)
        if not self._options.no_browser:
            await asyncio.to_thread(webbrowser.open, f"{address}/")

    async def _read_from_vcenters(self) -> model.Topology:
        everywhere = self._cluster.for_all_namespaces(self._cluster.warn)
        nodes, volumes, groups = await asyncio.gather(
            everywhere.list_readable(Node),
            everywhere.list_readable(PersistentVolume),
            everywhere.list_readable(VmGroup),
        )
        async with self._open_vcenters() as vcenters:
            for vcenter in vcenters:
                await vcenter.disks.poll()
                if vcenter.disks.problem is not None:
                    self._cluster.warn(f"skipped: disks of {vcenter.name}: {vcenter.disks.problem}")
            items = collect_topology(vcenters, nodes, volumes, groups)
        return store_of(items).build_topology()

    async def _find_page(self) -> manager_pods.Page | None:
        namespace = self._options.manager_namespace or manager_pods.DEFAULT_NAMESPACE
        return await manager_pods.find_page(self._cluster.client, namespace)

    @asynccontextmanager
    async def _open_page(
        self, manager_page: manager_pods.Page | None = None, local_port: int = 0
    ) -> AsyncIterator[page.ForwardedPage]:
        """The address of the page: that of --page, or a port that is forwarded to it."""
        if self._options.page:
            yield page.ForwardedPage(self._options.page.rstrip("/"))
            return
        manager_page = manager_page or await self._find_page()
        if manager_page is None:
            raise ConfigError(f"no manager with a page was found. {manager_pods.HELP}")
        if manager_page.scheme == "https" and self._options.command != "open":
            raise ConfigError(
                "the page of the manager needs a token, because it is not on a loopback address. "
                "Use `kubectl vsphere open`, or read vCenter with --vcenter."
            )
        flags = [
            f"--{name}={value}"
            for name, value in (
                ("kubeconfig", self._options.kubeconfig),
                ("context", self._options.context),
            )
            if value
        ]
        async with page.forward_port(manager_page, flags, self._environ, local_port) as opened:
            yield opened


def _render(table: Table, printer: TextOptions, empty: str = "No resources found.") -> str:
    if not table.rows:
        return empty
    return render_table(table, width=printer.width, color=printer.color)


def _find_host(hosts: Sequence[model.Host], name: str) -> model.Host:
    """The host with this id, or the only one with this name; its first label is enough."""
    matches = (
        [host for host in hosts if host.id == name]
        or [host for host in hosts if host.name == name]
        or [host for host in hosts if host.name.partition(".")[0] == name]
    )
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise ConfigError(f'no host has the name or id "{name}"')
    ids = ", ".join(host.id for host in matches)
    raise ConfigError(f'{len(matches)} hosts have the name "{name}"; use an id: {ids}')
