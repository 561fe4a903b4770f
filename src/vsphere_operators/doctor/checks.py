"""All checks in their order, in chapters; none keeps another from being made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace

from kubewright import Manager
from kubewright.errors import ConfigError
from kubewright.kubeconfig import Connection
from kubewright.transport import Transport

from ..kinds.vmgroup.limits import read_limits
from ..settings.environment import Environment
from ..settings.flags import Settings
from ..vcenters.config import VCenterConfig, choose_vcenter
from ..vcenters.registry import CONFIGURATION_HINT
from . import cluster, metrics_endpoint, vcenter
from .cluster import Cluster
from .finding import Finding, ok, problem, run_check, warning
from .placement import VmGroupRequest

ManagerBuilder = Callable[[Manager, Settings], None]
SectionFinding = tuple[str, Finding]
"""The chapter, and what was found."""

_SET_VCENTER_COMMAND = "export GOVMOMI_URL=VCENTER GOVMOMI_USERNAME=USER && read -rsp 'password: ' GOVMOMI_PASSWORD && export GOVMOMI_PASSWORD"
CLUSTER_SECTION, MANAGER_SECTION = "Kubernetes", "This manager"


class DoctorRun:
    """One run of the doctor."""

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], build: ManagerBuilder
    ) -> None:
        self.settings, self.environ, self.build = settings, environ, build
        self.vmgroups: list[VmGroupRequest] = []

    async def findings(self) -> AsyncIterator[SectionFinding]:
        """Every finding, as soon as it is made."""
        async for finding in run_check("cluster", self._check_kubernetes()):
            yield CLUSTER_SECTION, finding
        async for finding in run_check("settings", self._check_manager()):
            yield MANAGER_SECTION, finding
        configs = list[VCenterConfig]()
        async for finding in run_check("vCenter", self._check_vcenter_settings(configs)):
            yield "vCenter", finding
        for config in configs:
            async for finding in vcenter.check(config, self._vmgroups_served_by(config, configs)):
                yield f"vCenter {config.name}", finding

    async def _check_kubernetes(self) -> AsyncIterator[Finding]:
        """The cluster."""
        found = await asyncio.to_thread(cluster.load_connection, self.settings, self.environ)
        if isinstance(found, Finding):
            yield found
            yield cluster.skipped_cluster_finding()
            return
        there = Cluster(
            connection=found, transport=Transport(found, user_agent="vsphere-operators-doctor")
        )
        try:
            async for finding in self._check_reachable_cluster(there):
                yield finding
        finally:
            await there.transport.close()

    async def _check_reachable_cluster(self, there: Cluster) -> AsyncIterator[Finding]:
        """What the API server tells."""
        reached = True
        async for finding in run_check("API server", cluster.check_api_server(there)):
            reached = reached and (finding.level != "problem" or finding.subject == "clock")
            yield finding
        if not reached:
            yield cluster.skipped_cluster_finding()
            return
        manager = await asyncio.to_thread(self.build_manager, there.connection)
        async for finding in run_check(
            "cluster", cluster.check_cluster(there, self.settings, manager)
        ):
            yield finding
        self.vmgroups = await cluster.list_vmgroup_requests(there, self.settings)

    def build_manager(self, connection: Connection) -> Manager:
        """The manager as these settings make it, never started. Rights do not depend on which vCenters there are."""
        alone = replace(
            self.settings,
            environment=Environment(),
            credentials_directory="",
            vcenters_file="",
            limits_file="",
        )
        manager = Manager(connection, self.settings.to_options(cluster.MANAGER_NAME))
        self.build(manager, alone)
        return manager

    async def _check_manager(self) -> AsyncIterator[Finding]:
        """What the manager itself would be."""
        async for finding in run_check(
            "metrics",
            metrics_endpoint.check(
                self.settings.metrics_bind_address, secure=self.settings.metrics_secure
            ),
        ):
            yield finding
        if self.settings.limits_file:
            await asyncio.to_thread(read_limits, self.settings.limits_file)
            yield ok("limits", f"{self.settings.limits_file} can be read")

    async def _check_vcenter_settings(self, found: list[VCenterConfig]) -> AsyncIterator[Finding]:
        """Which vCenters the settings name; they are added to `found`."""
        odd = list[str]()
        try:
            found += await asyncio.to_thread(self.settings.read_vcenter_configs, odd.append)
        except ConfigError as error:
            yield problem("settings", str(error), _SET_VCENTER_COMMAND)
            return
        for words in odd:
            yield warning("settings", words)
        if found:
            yield ok(
                "settings",
                ", ".join(f"{config.name} ({config.address.base_url})" for config in found),
            )
        else:
            words = f"no vCenter is configured: only MyCustomResource works, the other kinds say NoVCenter. {CONFIGURATION_HINT}."
            yield problem("settings", words, _SET_VCENTER_COMMAND)

    def _vmgroups_served_by(
        self, config: VCenterConfig, configs: Sequence[VCenterConfig]
    ) -> list[VmGroupRequest]:
        """The groups whose namespace this vCenter serves by name; those that labels decide about are left out."""
        if any(each.namespaces is not None and each.namespaces.labels for each in configs):
            return []
        return [
            group
            for group in self.vmgroups
            if choose_vcenter(configs, group.namespace, {}) is config
        ]
