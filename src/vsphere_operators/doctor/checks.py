"""All checks in their order, in chapters; none keeps another from being made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace

from kubewright import Manager
from kubewright.errors import ConfigError
from kubewright.kubeconfig import Connection
from kubewright.transport import Transport

from ..kinds.vmgroup.limits_file import read_limits
from ..settings.environment import Environment
from ..settings.flags import Settings
from ..vcenters.config import VCenterConfig, choose_vcenter
from ..vcenters.registry import HOW_TO_CONFIGURE
from . import cluster, metrics_endpoint, vcenter
from .cluster import Cluster
from .finding import Finding, guarded, ok, problem, warning
from .placement import Wanted

Build = Callable[[Manager, Settings], None]
Line = tuple[str, Finding]
"""The chapter, and what was found."""

SET = "export GOVMOMI_URL=VCENTER GOVMOMI_USERNAME=USER && read -rsp 'password: ' GOVMOMI_PASSWORD && export GOVMOMI_PASSWORD"
CLUSTER, MANAGER = "Kubernetes", "This manager"


class Examination:
    """One run of the doctor."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], build: Build) -> None:
        self.settings, self.environ, self.build = settings, environ, build
        self.groups: list[Wanted] = []

    async def lines(self) -> AsyncIterator[Line]:
        """Every finding, as soon as it is made."""
        async for finding in guarded("cluster", self.kubernetes()):
            yield CLUSTER, finding
        async for finding in guarded("settings", self.manager()):
            yield MANAGER, finding
        configs = list[VCenterConfig]()
        async for finding in guarded("vCenter", self.configured(configs)):
            yield "vCenter", finding
        for config in configs:
            async for finding in vcenter.check(config, self.served_by(config, configs)):
                yield f"vCenter {config.name}", finding

    async def kubernetes(self) -> AsyncIterator[Finding]:
        """The cluster."""
        found = await asyncio.to_thread(cluster.find, self.settings, self.environ)
        if isinstance(found, Finding):
            yield found
            yield cluster.unasked()
            return
        there = Cluster(connection=found, transport=Transport(found, user_agent="vsphere-operators-doctor"))
        try:
            async for finding in self.inside(there):
                yield finding
        finally:
            await there.transport.close()

    async def inside(self, there: Cluster) -> AsyncIterator[Finding]:
        """What the API server tells."""
        reached = True
        async for finding in guarded("API server", cluster.reach(there)):
            reached = reached and (finding.level != "problem" or finding.subject == "clock")
            yield finding
        if not reached:
            yield cluster.unasked()
            return
        manager = await asyncio.to_thread(self.built, there.connection)
        async for finding in guarded("cluster", cluster.look(there, self.settings, manager)):
            yield finding
        self.groups = await cluster.groups(there, self.settings)

    def built(self, connection: Connection) -> Manager:
        """The manager as these settings make it, never started. Rights do not depend on which vCenters there are."""
        alone = replace(self.settings, environment=Environment(), credentials_directory="", vcenters_file="", limits_file="")
        manager = Manager(connection, self.settings.options(cluster.NAME))
        self.build(manager, alone)
        return manager

    async def manager(self) -> AsyncIterator[Finding]:
        """What the manager itself would be."""
        async for finding in guarded("metrics", metrics_endpoint.check(self.settings.metrics_address, secure=self.settings.metrics_secure)):
            yield finding
        if self.settings.limits_file:
            await asyncio.to_thread(read_limits, self.settings.limits_file)
            yield ok("limits", f"{self.settings.limits_file} can be read")

    async def configured(self, found: list[VCenterConfig]) -> AsyncIterator[Finding]:
        """Which vCenters the settings name; they are added to `found`."""
        odd = list[str]()
        try:
            found += await asyncio.to_thread(self.settings.read_vcenter_configs, odd.append)
        except ConfigError as error:
            yield problem("settings", str(error), SET)
            return
        for words in odd:
            yield warning("settings", words)
        if found:
            yield ok("settings", ", ".join(f"{config.name} ({config.address.root})" for config in found))
        else:
            words = f"no vCenter is configured: only MyCustomResource works, the other kinds say NoVCenter. {HOW_TO_CONFIGURE}."
            yield problem("settings", words, SET)

    def served_by(self, config: VCenterConfig, configs: Sequence[VCenterConfig]) -> list[Wanted]:
        """The groups whose namespace this vCenter serves by name; those that labels decide about are left out."""
        if any(each.namespaces is not None and each.namespaces.labels for each in configs):
            return []
        return [group for group in self.groups if choose_vcenter(configs, group.namespace, {}) is config]
