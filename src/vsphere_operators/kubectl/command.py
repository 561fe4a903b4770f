"""`kubectl vsphere`: the command line, and each command from its sources to its lines."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import yaml

from kubewright import Key
from kubewright.builtin import Event, Node
from kubewright.errors import KubewrightError, NotFound
from kubewright.log import LogOptions, configure_logging

from ..kinds.gpuinfo.rules import SelectionRules
from ..kinds.gpuinfo.types import GPUInfo
from ..kinds.vmgroup.types import VmGroup
from ..terminal import discard_stdout, replace_unencodable
from ..vsphere.faults import VCenterError
from . import top, tree, vmgroup, why
from .rows import Rows, rows_from_objects
from .sources import Cluster, load_connection, open_vcenters, read_node_facts, rows_from_vcenters
from .table import Table, render_table

PROGRAM = "kubectl vsphere"
Output = Literal["", "wide", "json", "yaml"]


@dataclass(frozen=True)
class Printer:
    """How an answer is written."""

    output: Output
    width: int
    """0 where there is no terminal to fit into."""
    color: bool

    @property
    def wide(self) -> bool:
        """Whether more columns are wanted; they are not cut then."""
        return self.output == "wide"

    def _format_output(self, value: Any, lines: Callable[[], str]) -> str:
        """For programs, or the lines for people."""
        if self.output not in ("json", "yaml"):
            return lines()
        plain = msgspec.to_builtins(value, enc_hook=str)
        if self.output == "json":
            return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
        return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip()

    def format_table(self, made: Table) -> str:
        """A table; a wide one runs over the edge, as kubectl's do."""
        if not made.rows:
            return "Nothing found. The manager answers what objects ask: see `kubectl get hi,vi,vg -A`; or look into vCenter with --vcenter."
        return render_table(made, width=0 if self.wide else self.width, color=self.color)


class Commands:
    """What can be asked."""

    def __init__(
        self,
        options: argparse.Namespace,
        cluster: Cluster,
        environ: Mapping[str, str],
        printer: Printer,
    ) -> None:
        self.options, self.cluster, self.environ, self._printer = options, cluster, environ, printer

    async def top(self) -> str:
        """Hosts or VMs."""
        rows, page = await self._read_rows(), self._printer
        if self.options.what == "hosts":
            return page._format_output(
                rows.hosts,
                lambda: page.format_table(
                    top.host_table(rows.hosts, wide=page.wide, short_names=page.width > 0)
                ),
            )
        return page._format_output(
            rows.vms, lambda: page.format_table(top.vm_table(rows.vms, wide=page.wide))
        )

    async def tree(self) -> str:
        """Where everything is."""
        branches, page = tree.build_tree(await self._read_rows()), self._printer
        width = 0 if page.wide else page.width
        return page._format_output(
            branches,
            lambda: (
                "\n".join(tree.render_tree(branches, width=width, color=page.color))
                or page.format_table(Table(columns=()))
            ),
        )

    async def describe(self) -> str:
        """One group."""
        key, page = self._object_key(), self._printer
        found = await self.cluster.client.get(VmGroup, key)
        events = await self.cluster.client.list(
            Event,
            key.namespace,
            field_selector=f"involvedObject.kind=VmGroup,involvedObject.name={key.name}",
        )
        width = 0 if page.wide else page.width
        return page._format_output(
            found,
            lambda: "\n".join(
                vmgroup.render_group(found, events, wide=page.wide, width=width, color=page.color)
            ),
        )

    async def why(self) -> str:
        """One choice."""
        info = await self.cluster.client.get(GPUInfo, self._object_key())
        nodes, now, page = await self.cluster.list_readable(Node), datetime.now(UTC), self._printer
        facts = None
        if self.options.vcenter:
            async with open_vcenters(
                self._vcenter_flags, self.environ, self.cluster.warn
            ) as opened:
                facts = await read_node_facts(opened, nodes, now)
        answer = why.explain_selection(info, nodes, facts, SelectionRules(), now)
        width = 0 if page.wide else page.width
        return page._format_output(
            answer, lambda: "\n".join(why.render_explanation(answer, width=width, color=page.color))
        )

    async def _read_rows(self) -> Rows:
        """From the objects, or from the vCenters themselves."""
        objects = await self.cluster.read_objects()
        told = rows_from_objects(objects)
        if not self.options.vcenter:
            return told
        async with open_vcenters(self._vcenter_flags, self.environ, self.cluster.warn) as opened:
            return await rows_from_vcenters(opened, objects.nodes, told)

    @property
    def _vcenter_flags(self) -> list[str]:
        """Those of the manager's flags that say how to reach a vCenter."""
        given = {"vcenter-ca-file": self.options.vcenter_ca_file, "vcenters": self.options.vcenters}
        return [f"-{name}={value}" for name, value in given.items() if value] + (
            ["-insecure"] if self.options.insecure else []
        )

    def _object_key(self) -> Key:
        """The object that is meant."""
        return Key(self.cluster.namespace, self.options.name)


FLAG_DEFAULTS: Mapping[str, str | bool] = {
    "namespace": "",
    "all_namespaces": False,
    "output": "",
    "kubeconfig": "",
    "context": "",
    "vcenter": False,
    "vcenters": "",
    "vcenter_ca_file": "",
    "insecure": False,
}


def _build_shared_parser() -> argparse.ArgumentParser:
    """Those of every command. They have no defaults here: a command's would undo what was given before it."""
    shared = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    shared.add_argument(
        "-n", "--namespace", help="the namespace of the objects; the kubeconfig's by default"
    )
    shared.add_argument(
        "-A", "--all-namespaces", action="store_true", help="the objects of all namespaces"
    )
    shared.add_argument(
        "-o", "--output", choices=("wide", "json", "yaml"), help="how to write the answer"
    )
    shared.add_argument("--kubeconfig", help="path of a kubeconfig")
    shared.add_argument("--context", help="context of the kubeconfig")
    shared.add_argument(
        "--vcenter",
        action="store_true",
        help="look into vCenter itself, named by the manager's variables (GOVMOMI_URL...)",
    )
    shared.add_argument(
        "--vcenters", metavar="FILE", help="with --vcenter: the manager's file of several vCenters"
    )
    shared.add_argument(
        "--vcenter-ca-file", metavar="FILE", help="with --vcenter: CA bundle to verify it with"
    )
    shared.add_argument(
        "--insecure", action="store_true", help="with --vcenter: do not verify its certificate"
    )
    return shared


def _build_parser() -> argparse.ArgumentParser:
    """The command line; flags may stand before the command and after it."""
    shared = _build_shared_parser()
    main = argparse.ArgumentParser(
        prog=PROGRAM,
        parents=[shared],
        description="Looks around in what the vSphere operators wrote.",
    )
    commands = main.add_subparsers(dest="command", required=True, metavar="COMMAND")
    each = commands.add_parser("top", parents=[shared], help="hosts or vms, the busiest first")
    each.add_argument("what", choices=("hosts", "vms"))
    commands.add_parser(
        "tree",
        parents=[shared],
        help="datacenter, cluster, host, VM and node, with the disks beside",
    )
    each = commands.add_parser(
        "describe", parents=[shared], help="a VmGroup with its VMs and events"
    )
    each.add_argument("what", choices=("group",))
    each.add_argument("name")
    each = commands.add_parser(
        "why", parents=[shared], help="why a GPUInfo chose its node, and who was refused"
    )
    each.add_argument("what", choices=("gpu",))
    each.add_argument("name")
    return main


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """What is asked. One object has one namespace: who asks for it in all of them is told so."""
    made = _build_parser()
    options = made.parse_args(argv, argparse.Namespace(**FLAG_DEFAULTS))
    if options.all_namespaces and hasattr(options, "name"):
        made.error(
            f"-A is for top and tree; {options.command} shows one object. Name its namespace: -n NAMESPACE"
        )
    return options


async def run_command(
    options: argparse.Namespace, environ: Mapping[str, str], page: Printer
) -> str:
    """One command."""
    connection = await asyncio.to_thread(
        load_connection, options.kubeconfig, options.context, environ
    )
    namespace = "" if options.all_namespaces else options.namespace or connection.namespace
    cluster = Cluster(connection, namespace, lambda words: print(words, file=sys.stderr))
    try:
        return str(await getattr(Commands(options, cluster, environ, page), options.command)())
    finally:
        await cluster.transport.close()


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """0 with an answer, 1 without, 2 for a wrong command line."""
    environ = os.environ if environ is None else environ
    options = parse_arguments(argv)
    replace_unencodable(sys.stdout, machine_readable=options.output in ("json", "yaml"))
    configure_logging(LogOptions(level="panic"))
    terminal = sys.stdout.isatty()
    page = Printer(
        options.output,
        shutil.get_terminal_size().columns if terminal else 0,
        terminal and "NO_COLOR" not in environ,
    )
    try:
        print(asyncio.run(run_command(options, environ, page)), flush=True)
    except NotFound as error:
        print(
            f"{PROGRAM}: {error}. Is the namespace right? -n NAMESPACE names another.",
            file=sys.stderr,
        )
        return 1
    except (KubewrightError, VCenterError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return discard_stdout()
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
