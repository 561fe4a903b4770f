"""`manager doctor`: flags, the order of the checks, and the exit code."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TextIO

from kubewright import Manager
from kubewright.errors import ConfigError
from kubewright.flags import FlagError, HelpRequested, flag, invalid_value, parse_command_line
from kubewright.kubeconfig import Connection
from kubewright.log import configure_logging
from kubewright.transport import Transport

from ..console import (
    discard_stdout,
    format_document,
    replace_unencodable,
    supports_color,
    terminal_width,
)
from ..kinds.vmgroup.limits import read_limits
from ..leader_lease import MANAGER_NAME
from ..settings.environment import Environment
from ..settings.flags import Settings
from ..vcenters.config import VCenterConfig
from ..vcenters.namespace_rules import choose_vcenter
from ..vcenters.registry import CONFIGURATION_HINT
from . import cluster, metrics_endpoint, vcenter, vmgroups
from .cluster import Cluster
from .finding import Finding, SectionFinding, ok, problem, run_check, warning
from .installation import Installation, find_installation
from .placement import VmGroupRequest
from .recording import Recording
from .report import TextReport, as_legacy_json, build_document, summary

_PROGRAM = "manager doctor"
_SET_VCENTER_COMMAND = (
    "export GOVMOMI_URL=VCENTER GOVMOMI_USERNAME=USER && "
    "read -rsp 'password: ' GOVMOMI_PASSWORD && export GOVMOMI_PASSWORD"
)

ManagerBuilder = Callable[[Manager, Settings], None]


@dataclass(frozen=True)
class DoctorSettings(Settings):
    """The manager's own flags, so that the doctor checks what the manager would use."""

    json: bool = flag(
        "json", False, "Print the findings as JSON with the keys of older releases. See -o."
    )
    output: str = flag(
        "o", "", "Output format: text (the default), json or yaml.", aliases=("output",)
    )
    record: str = flag(
        "record",
        "",
        "Record all requests to the vCenters and the responses in this new directory, with names, "
        "addresses and identifiers replaced, to attach them to a bug report.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output not in ("", "text", "json", "yaml"):
            raise invalid_value("o", self.output, "must be text, json or yaml")
        if self.json and self.output not in ("", "json"):
            raise invalid_value("o", self.output, "cannot be combined with -json")

    @property
    def _output_format(self) -> str:
        return self.output or ("legacy-json" if self.json else "text")


def run(
    argv: Sequence[str],
    environ: Mapping[str, str],
    build: ManagerBuilder,
    out: TextIO | None = None,
) -> int:
    """Exit codes: 0 no problems, 1 problems, 2 a wrong flag, 130 Ctrl-C, 141 closed pipe."""
    out = out or sys.stdout
    try:
        settings = parse_command_line(DoctorSettings, argv, environ, program=_PROGRAM)
        # The findings contain what the manager would log; -zap-log-level prints both.
        configure_logging(replace(settings.logs, level=settings.logs.level or "panic"))
    except HelpRequested as help_request:
        print(help_request.usage, file=out)
        return 0
    except ConfigError as error:
        hint = f"\nRun `{_PROGRAM} -help` for the flags." if isinstance(error, FlagError) else ""
        print(f"{_PROGRAM}: {error}{hint}", file=sys.stderr)
        return 2
    output_format = settings._output_format
    replace_unencodable(out, machine_readable=output_format != "text")
    report = TextReport(columns=terminal_width(out), color=supports_color(out, environ))
    doctor = _DoctorRun(settings, environ, build)
    try:
        entries = asyncio.run(_print_report(doctor, report, out, output_format))
    except BrokenPipeError:
        return discard_stdout()
    except KeyboardInterrupt:
        return 130
    return int(any(finding.level == "problem" for _, finding in entries))


async def _print_report(
    doctor: _DoctorRun, report: TextReport, out: TextIO, output_format: str
) -> list[SectionFinding]:
    """Prints text as the findings arrive, JSON and YAML at the end."""
    entries: list[SectionFinding] = []
    async for entry in doctor.findings():
        entries.append(entry)
        if output_format == "text":
            print(*report.render_finding(entry), sep="\n", file=out, flush=True)
    match output_format:
        case "text":
            end = f"\n{summary([finding for _, finding in entries])}"
        case "legacy-json":
            end = as_legacy_json(entries)
        case _:
            end = format_document(build_document(entries), output_format)
    print(end, file=out, flush=True)
    return entries


class _DoctorRun:
    """All checks in their order; a check that fails does not stop the next one."""

    def __init__(
        self, settings: DoctorSettings, environ: Mapping[str, str], build: ManagerBuilder
    ) -> None:
        self._settings, self._environ, self._build = settings, environ, build
        # What the checks have read so far.
        self._installation = Installation()
        # None if the cluster could not be read.
        self._vmgroups: list[VmGroupRequest] | None = None
        self._vcenter_configs: Sequence[VCenterConfig] = ()
        # By name of the vCenter; without those in namespaces that are selected by labels.
        self._vmgroups_by_vcenter: dict[str, list[VmGroupRequest]] = {}

    async def findings(self) -> AsyncIterator[SectionFinding]:
        """Every finding with its section, as soon as it exists."""
        async for finding in run_check("cluster", self._check_kubernetes()):
            yield "Kubernetes", finding
        async for finding in run_check("settings", self._check_manager()):
            yield "This manager", finding
        async for finding in run_check("vCenter", self._check_vcenter_settings()):
            yield "vCenter", finding
        recording = Recording(self._settings.record) if self._settings.record else None
        if recording and (occupied := recording.check_folder()):
            yield "vCenter", occupied
            recording = None
        for finding in self._assign_vmgroups():
            yield "vCenter", finding
        for config in self._vcenter_configs:
            groups = self._vmgroups_by_vcenter.get(config.name, [])
            async for finding in vcenter.check(
                config,
                groups,
                self._installation,
                recording,
                serves_vmgroups=self._may_serve_vmgroups(groups),
            ):
                yield f"vCenter {config.name}", finding

    async def _check_kubernetes(self) -> AsyncIterator[Finding]:
        connection = await asyncio.to_thread(cluster.load_connection, self._settings, self._environ)
        if isinstance(connection, Finding):
            yield connection
            yield cluster.skipped_cluster_finding()
            return
        transport = Transport(connection, user_agent="vsphere-operators-doctor")
        try:
            async for finding in self._check_connected_cluster(
                Cluster(connection=connection, transport=transport)
            ):
                yield finding
        finally:
            await transport.close()

    async def _check_connected_cluster(self, connected: Cluster) -> AsyncIterator[Finding]:
        is_reachable = True
        async for finding in run_check("API server", cluster.check_api_server(connected)):
            # A wrong clock does not prevent the other checks.
            if finding.level == "problem" and finding.subject != "clock":
                is_reachable = False
            yield finding
        if not is_reachable:
            yield cluster.skipped_cluster_finding()
            return
        manager = await asyncio.to_thread(self._build_manager, connected.connection)
        lease = cluster.lease_key(connected, self._settings)
        self._installation = await find_installation(connected.client, lease)
        checks = cluster.check_cluster(connected, self._settings, manager, self._installation)
        async for finding in run_check("cluster", checks):
            yield finding
        groups = await cluster.list_vmgroups(connected, self._settings)
        if groups is None:
            return
        for finding in vmgroups.check_conditions(groups):
            yield finding
        self._vmgroups = await cluster.build_requests(groups, self._settings)

    def _build_manager(self, connection: Connection) -> Manager:
        """The manager that these settings build, never started; its permissions are checked."""
        # Permissions do not depend on the vCenters, and a broken vCenter must not hide them.
        settings = replace(
            self._settings,
            environment=Environment(),
            credentials_directory="",
            vcenters_file="",
            limits_file="",
        )
        manager = Manager(connection, self._settings.to_options(MANAGER_NAME))
        self._build(manager, settings)
        return manager

    async def _check_manager(self) -> AsyncIterator[Finding]:
        settings = self._settings
        async for finding in run_check(
            "metrics",
            metrics_endpoint.check(settings.metrics_bind_address, secure=settings.metrics_secure),
        ):
            yield finding
        if settings.limits_file:
            await asyncio.to_thread(read_limits, settings.limits_file)
            yield ok("limits", f"{settings.limits_file} is valid")

    async def _check_vcenter_settings(self) -> AsyncIterator[Finding]:
        warnings: list[str] = []
        try:
            # A missing file is a finding of the connection or the login, with its fix.
            configs = await asyncio.to_thread(
                self._settings.read_vcenter_configs, warnings.append, check_files=False
            )
        except ConfigError as error:
            from_files = self._settings.vcenters_file or self._settings.credentials_directory
            yield problem("settings", str(error), "" if from_files else _SET_VCENTER_COMMAND)
            return
        self._vcenter_configs = configs
        for message in warnings:
            yield warning("settings", message)
        if configs:
            addresses = (f"{config.name} ({config.address.base_url})" for config in configs)
            yield ok("settings", ", ".join(addresses))
        else:
            yield problem(
                "settings",
                "No vCenter is configured: only MyCustomResource works, the other kinds report "
                f"NoVCenter. {CONFIGURATION_HINT}.",
                self._installation.credentials_command(
                    self._settings.credentials_directory, "VCENTER"
                )
                if self._settings.credentials_directory
                else _SET_VCENTER_COMMAND,
            )

    def _assign_vmgroups(self) -> Iterator[Finding]:
        """Find the vCenter of each VmGroup, by the name of its namespace."""
        configs, groups = self._vcenter_configs, self._vmgroups or []
        if groups and self._selects_by_labels:
            yield ok(
                "VmGroup",
                f"The placement of {len(groups)} VmGroups was not checked: `namespaces` in the "
                "file of -vcenters has labels, and the doctor does not read those of namespaces",
            )
            return
        ambiguous: set[str] = set()
        for group in groups:
            try:
                config = choose_vcenter(configs, group.namespace, {})
            except ConfigError as error:
                if str(error) not in ambiguous:
                    yield problem("VmGroup", str(error))
                ambiguous.add(str(error))
                continue
            if config is not None:
                self._vmgroups_by_vcenter.setdefault(config.name, []).append(group)

    @property
    def _selects_by_labels(self) -> bool:
        return any(
            config.namespaces is not None and config.namespaces.labels
            for config in self._vcenter_configs
        )

    def _may_serve_vmgroups(self, groups: Sequence[VmGroupRequest]) -> bool:
        return (
            bool(groups)
            or self._vmgroups is None
            or (self._selects_by_labels and bool(self._vmgroups))
        )
