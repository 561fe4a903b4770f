"""`kubectl vsphere`: the command line, and each command from its sources to its output."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from kubewright import Key
from kubewright.builtin import Event, Node
from kubewright.errors import KubewrightError, NotFound
from kubewright.log import LogOptions, configure_logging

from ..console import (
    discard_stdout,
    escape_lines,
    format_document,
    replace_unencodable,
    supports_color,
    terminal_width,
)
from ..kinds.gpuinfo.rules import SelectionRules
from ..kinds.gpuinfo.types import GPUInfo
from ..kinds.vmgroup.types import VmGroup
from ..version import VERSIONS
from ..vsphere.faults import VCenterError
from ..vsphere.vcenter import VCenter
from . import shards, top, tree, vmgroup, why
from .adopt import AdoptCommand, add_adopt_parser
from .row_sources import RowSource, choose_source
from .sources import ClusterReader, load_connection, open_vcenters, read_node_facts
from .staleness import warn_of_stale_objects
from .table import Table, render_table
from .topology_commands import (
    TOPOLOGY_COMMANDS,
    TopologyCommands,
    add_page_flags,
    add_topology_parsers,
)

_PROGRAM = "kubectl vsphere"
Output = Literal["", "wide", "json", "yaml"]


@dataclass(frozen=True)
class Printer:
    """The output format; `terminal_columns` is 0 without a terminal."""

    output: Output
    terminal_columns: int
    color: bool

    @property
    def wide(self) -> bool:
        """Whether to show more columns. They run over the edge, as kubectl's do."""
        return self.output == "wide"

    @property
    def width(self) -> int:
        return 0 if self.wide else self.terminal_columns

    def _format_output(self, value: Any, render: Callable[[], str]) -> str:
        """JSON or YAML of the value, or the rendered text."""
        if self.output not in ("json", "yaml"):
            return render()
        return format_document(value, self.output)


class _Commands:
    def __init__(
        self,
        options: argparse.Namespace,
        cluster: ClusterReader,
        environ: Mapping[str, str],
        printer: Printer,
    ) -> None:
        self._options, self._cluster = options, cluster
        self._environ, self._printer = environ, printer
        self._commands = {
            "top": self._top,
            "tree": self._tree,
            "describe": self._describe,
            "why": self._why,
            "adopt": self._adopt,
            "shards": self._shards,
        }
        self.topology = TopologyCommands(options, cluster, environ, self._open_vcenters)

    async def run(self) -> str:
        if self._options.command in TOPOLOGY_COMMANDS:
            return self._printer._format_output(*await self.topology.run(self._printer))
        return await self._commands[self._options.command]()

    async def _top(self) -> str:
        source, printer, what = self._row_source(), self._printer, self._options.what
        rows = await source.read()
        # To stderr, so that scripts get rows only.
        self._cluster.warn(source.describe(rows, what))
        # JSON and YAML have the rows with full names; only a terminal needs short ones.
        if what == "hosts":
            table = top.host_table(
                rows.hosts, wide=printer.wide, short_names=printer.terminal_columns > 0
            )
            return printer._format_output(rows.hosts, lambda: self._render_table(table))
        table = top.vm_table(rows.vms, wide=printer.wide)
        return printer._format_output(rows.vms, lambda: self._render_table(table))

    async def _tree(self) -> str:
        branches, printer = tree.build_tree(await self._row_source().read()), self._printer
        lines = tree.render_tree(branches, width=printer.width, color=printer.color)
        return printer._format_output(branches, lambda: "\n".join(lines) or self._no_resources())

    async def _describe(self) -> str:
        key, printer, client = self._object_key(), self._printer, self._cluster.client
        group = await client.get(VmGroup, key)
        events = await client.list(
            Event,
            key.namespace,
            # By uid: a group of the same name may have been deleted within the last hour.
            field_selector=f"involvedObject.uid={group.metadata.uid}",
        )
        lines = vmgroup.render_group(
            group, events, wide=printer.wide, width=printer.width, color=printer.color
        )
        return printer._format_output(group, lambda: "\n".join(lines))

    async def _why(self) -> str:
        info = await self._cluster.client.get(GPUInfo, self._object_key())
        nodes, now = await self._cluster.list_readable(Node), datetime.now(UTC)
        facts = None
        if self._options.vcenter:
            async with self._open_vcenters() as vcenters:
                facts = await read_node_facts(vcenters, nodes, now)
        # The defaults: the flags of the manager are not readable here.
        explanation = why.explain_selection(info, nodes, facts, SelectionRules(), now)
        lines = why.render_explanation(
            explanation, width=self._printer.width, color=self._printer.color
        )
        return self._printer._format_output(explanation, lambda: "\n".join(lines))

    async def _adopt(self) -> str:
        command = AdoptCommand(self._cluster.client, self._object_key(), self._options)
        value, render = await command.run(width=self._printer.width, color=self._printer.color)
        return self._printer._format_output(value, render)

    async def _shards(self) -> str:
        rows = await shards.read_shards(self._cluster, self._options.lease)
        table = shards.shard_table(rows)
        return self._printer._format_output(rows, lambda: self._render_table(table))

    def _row_source(self) -> RowSource:
        return choose_source(
            self._cluster,
            self._open_vcenters,
            self.topology.read_rows,
            use_vcenter=self._options.vcenter,
        )

    def _open_vcenters(self) -> AbstractAsyncContextManager[list[VCenter]]:
        options = self._options
        values = {"vcenter-ca-file": options.vcenter_ca_file, "vcenters": options.vcenters}
        # The manager has flags of the same names.
        flags = [f"-{name}={value}" for name, value in values.items() if value]
        if options.insecure:
            flags.append("-insecure")
        return open_vcenters(flags, self._environ, self._cluster.warn)

    def _object_key(self) -> Key:
        return Key(self._cluster.namespace, self._options.name)

    def _render_table(self, table: Table) -> str:
        if not table.rows:
            return self._no_resources()
        return render_table(table, width=self._printer.width, color=self._printer.color)

    def _no_resources(self) -> str:
        namespace = self._cluster.namespace
        return (
            f"No resources found in {namespace} namespace." if namespace else "No resources found."
        )


# argparse sets no default for the shared flags: the default of a subcommand would override a flag
# that is given before it.
FLAG_DEFAULTS: Mapping[str, str | bool] = {
    "namespace": "",
    "all_namespaces": False,
    "output": "",
    "kubeconfig": "",
    "context": "",
    "lease": "",
    "vcenter": False,
    "vcenters": "",
    "vcenter_ca_file": "",
    "insecure": False,
    "page": "",
    "manager_namespace": "",
}


def _build_shared_parser() -> argparse.ArgumentParser:
    """The flags of every command; they may be before or after its name."""
    shared = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    add = shared.add_argument
    add("-n", "--namespace", help="Namespace of the objects. Default: that of the kubeconfig.")
    add("-A", "--all-namespaces", action="store_true", help="Show objects of all namespaces.")
    add("-o", "--output", choices=("wide", "json", "yaml"), help="Output format.")
    add("--kubeconfig", help="Path of the kubeconfig file.")
    add("--context", help="Context of the kubeconfig to use.")
    add(
        "--lease",
        metavar="NAMESPACE/NAME",
        help="Lease of the manager, if it has another -leader-election-id.",
    )
    add(
        "--vcenter",
        action="store_true",
        help="Query vCenter directly. Requires GOVMOMI_URL, GOVMOMI_USERNAME and GOVMOMI_PASSWORD, "
        "or --vcenters.",
    )
    add("--vcenters", metavar="FILE", help="With --vcenter: the manager's -vcenters file.")
    add("--vcenter-ca-file", metavar="FILE", help="With --vcenter: CA bundle to verify vCenter.")
    add("--insecure", action="store_true", help="With --vcenter: do not verify the certificate.")
    add_page_flags(add)
    return shared


def _build_parser() -> argparse.ArgumentParser:
    shared = _build_shared_parser()
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        parents=[shared],
        description="Display vSphere inventory and VmGroup details, and adopt VMs.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser(
        "top", parents=[shared], help="Display hosts by CPU usage, or VMs by CPU demand."
    )
    command.add_argument("what", choices=("hosts", "vms"), metavar="hosts|vms")
    commands.add_parser(
        "tree",
        parents=[shared],
        help="Display datacenters, clusters, hosts, VMs, nodes and disks as a tree.",
    )
    command = commands.add_parser(
        "describe", parents=[shared], help="Show a VmGroup with its VMs, conditions and Events."
    )
    command.add_argument("what", choices=("group",), metavar="group")
    command.add_argument("name", metavar="NAME")
    command = commands.add_parser(
        "why", parents=[shared], help="Explain why a GPUInfo selected its node."
    )
    command.add_argument("what", choices=("gpu",), metavar="gpu")
    command.add_argument("name", metavar="NAME")
    commands.add_parser(
        "shards", parents=[shared], help="Display which replica of the manager has which shard."
    )
    add_adopt_parser(commands, shared)
    add_topology_parsers(commands, shared)
    # Not in the help. Users try it here, and _parse_arguments names the right command.
    commands.add_parser("doctor", parents=[shared])
    commands.add_parser(
        "version", parents=[shared], help="Print the versions of this program. Needs no cluster."
    )
    return parser


def _parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _build_parser()
    options = parser.parse_args(argv, argparse.Namespace(**FLAG_DEFAULTS))
    if options.all_namespaces and hasattr(options, "name"):
        parser.error(
            f"-A is for top and tree; {options.command} shows one object. "
            "Specify its namespace: -n NAMESPACE"
        )
    if options.command == "doctor":
        parser.error("the doctor is a command of the manager: run `manager doctor`")
    if options.command == "what-if" and (options.what != "host" or options.host is None):
        name = "NAME" if options.what == "host" else shlex.quote(options.what)
        parser.error(f"specify a host: {_PROGRAM} what-if host {name}")
    return options


def _print_error(message: str) -> None:
    print(escape_lines(message), file=sys.stderr)


async def _run_command(
    options: argparse.Namespace, environ: Mapping[str, str], printer: Printer
) -> str:
    if options.command == "version":
        return printer._format_output(VERSIONS, lambda: str(VERSIONS))
    connection = await asyncio.to_thread(
        load_connection, options.kubeconfig, options.context, environ
    )
    namespace = "" if options.all_namespaces else options.namespace or connection.namespace
    cluster = ClusterReader(connection, namespace, _print_error)
    commands = _Commands(options, cluster, environ, printer)
    try:
        if options.command in ("top", "tree", *TOPOLOGY_COMMANDS):
            await commands.topology.check_page()
        await warn_of_stale_objects(
            cluster,
            options.lease,
            manager_namespace=options.manager_namespace,
            page=commands.topology.page_address,
        )
        return await commands.run()
    finally:
        await cluster.transport.close()


async def _run_until_signal(command: Coroutine[Any, Any, str]) -> str:
    """SIGTERM cancels the command, as asyncio.run does at Ctrl-C, so that it ends its kubectl."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    return await command


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Exit codes: 0 success, 1 error, 2 wrong command line, 130 Ctrl-C, 141 closed pipe,
    143 SIGTERM.
    """
    environ = os.environ if environ is None else environ
    options = _parse_arguments(argv)
    replace_unencodable(sys.stdout, machine_readable=options.output in ("json", "yaml"))
    # Errors are printed below; log lines of the client would only repeat them.
    configure_logging(LogOptions(level="panic"))
    printer = Printer(
        options.output, terminal_width(sys.stdout), supports_color(sys.stdout, environ)
    )
    try:
        if output := asyncio.run(_run_until_signal(_run_command(options, environ, printer))):
            print(output, flush=True)
    except NotFound as error:
        _print_error(f"{_PROGRAM}: {error}. Check the namespace, or set it with -n.")
        return 1
    except (KubewrightError, VCenterError) as error:
        _print_error(f"{_PROGRAM}: {error}")
        return 1
    except BrokenPipeError:
        return discard_stdout()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    return 0
