"""Checks the cluster: connection, clock, CRDs, permissions and leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct

from kubewright import Client, Controller, Key, Manager, Object
from kubewright.errors import KubewrightError, NotFound, Unauthorized
from kubewright.kubeconfig import Connection, load_config
from kubewright.rbac import (
    EVENT_PERMISSION,
    LEADER_RULES,
    REVIEW_RULES,
    build_rules,
    manager_permissions,
    manager_rules,
)
from kubewright.transport import Transport
from kubewright.version import NEWEST_KUBERNETES, OLDEST_KUBERNETES, compare_kubernetes
from kubewright.webhook.ca_bundle import ca_permissions

from ..console import format_age
from ..kinds.vmgroup.limits import read_limits
from ..kinds.vmgroup.placement import placement_names
from ..kinds.vmgroup.types import VmGroup
from ..leader_lease import LEASE_NAME, MANAGER_NAME, SYSTEM_NAMESPACE
from ..node_labels.controller import NodeLabelController
from ..settings.flags import Settings
from . import crds, rbac
from .finding import Finding, ok, problem, run_check, warning
from .installation import Installation
from .leader import check_leader
from .node_labels import check_leftovers
from .placement import VmGroupRequest
from .rbac import Grant

_WARNING_SKEW = timedelta(seconds=5)
# Bearer tokens and certificates are accepted with some minutes of skew, vCenter's SAML tokens
# with at most 10.
_PROBLEM_SKEW = timedelta(minutes=5)
_ENABLE_NTP_COMMAND = "sudo timedatectl set-ntp true"


class Cluster(Struct, frozen=True, kw_only=True):
    """An API server and the connection to it; the doctor writes nothing."""

    connection: Connection
    transport: Transport

    @property
    def client(self) -> Client:
        return Client(self.transport, field_manager="doctor")


def load_connection(settings: Settings, environ: Mapping[str, str]) -> Connection | Finding:
    """The manager's connection, or the reason why it cannot be made. Reads files, so it blocks."""
    try:
        return load_config(
            settings.kubeconfig,
            settings.master,
            settings.context,
            environ=environ,
            home=Path(environ.get("HOME", "/")),
        )
    except KubewrightError as error:
        return problem(
            "kubeconfig",
            str(error),
            "export KUBECONFIG=FILE   # the file kubectl uses; or: manager doctor -kubeconfig=FILE",
        )


async def check_api_server(cluster: Cluster) -> AsyncIterator[Finding]:
    """Version, user and clock. Without a problem here the other checks can run."""
    connection = cluster.connection
    yield ok("kubeconfig", f"{connection.server} (from {connection.source})")
    try:
        version = await cluster.client.server_version()
        user = await rbac.whoami(cluster.client)
    except Unauthorized as error:
        yield problem(
            "API server",
            f"{error}. The credentials in this kubeconfig are missing, wrong or expired.",
            "kubectl auth whoami   # with the same kubeconfig; then log in to the cluster again",
        )
        return
    except KubewrightError as error:
        yield problem("API server", str(error), "kubectl cluster-info")
        return
    yield check_version(version, user)
    server_time = await cluster.transport.server_time()
    if server_time is not None:
        yield check_clock_skew(server_time, datetime.now(UTC), "the API server")


def check_version(version: str, user: str) -> Finding:
    message = f'Connected to Kubernetes {version} as user "{user}"'
    difference = compare_kubernetes(version)
    if not difference:
        return ok("API server", message)
    return warning(
        "API server",
        f"{message}. This version is {'older' if difference < 0 else 'newer'} than the supported "
        f"ones, {OLDEST_KUBERNETES} to {NEWEST_KUBERNETES}; it may work, but is not tested",
    )


def check_clock_skew(remote: datetime, local: datetime, owner: str) -> Finding:
    skew = abs(remote - local)
    difference = (
        f"The clock of {owner} is {format_age(skew)} "
        f"{'ahead of' if remote > local else 'behind'} the clock of this machine"
    )
    if skew >= _PROBLEM_SKEW:
        return problem(
            "clock",
            f"{difference}; certificates and tokens will be rejected as expired or not yet valid",
            _ENABLE_NTP_COMMAND,
        )
    if skew >= _WARNING_SKEW:
        return warning(
            "clock",
            f"{difference}; times in logs, statuses and leases will not match",
            _ENABLE_NTP_COMMAND,
        )
    return ok("clock", f"Clock skew {skew.total_seconds():.1f}s")


def lease_key(cluster: Cluster, settings: Settings) -> Key:
    return Key(
        settings.leader_election_namespace or cluster.connection.namespace,
        settings.leader_election_id or LEASE_NAME,
    )


async def check_cluster(
    cluster: Cluster, settings: Settings, manager: Manager, installation: Installation
) -> AsyncIterator[Finding]:
    """The checks that need an API server that responds; `manager` is built but not started."""
    client = cluster.client
    kinds: list[type[Object]] = [controller.kind for controller in manager.controllers]
    user = await rbac.whoami(client)
    lease = lease_key(cluster, settings)
    grants = _required_grants(settings, manager, lease.namespace)
    leftovers = () if settings.node_labels.enabled else (lease.namespace, SYSTEM_NAMESPACE)
    for subject, check in (
        ("CRDs", crds.check(client, kinds, installation)),
        ("rights", rbac.check(client, user, grants, installation)),
        (
            "leader",
            check_leader(
                client,
                lease,
                await cluster.transport.server_time() or datetime.now(UTC),
                installation,
                leader_election=settings.leader_election or settings.shards > 1,
                is_namespace_set=bool(settings.leader_election_namespace),
            ),
        ),
        ("label-nodes", check_leftovers(client, leftovers, installation)),
    ):
        async for finding in run_check(subject, check):
            yield finding


def _required_grants(settings: Settings, manager: Manager, lease_namespace: str) -> list[Grant]:
    """The generated roles that a manager with these settings needs."""
    labelers = [entry for entry in manager.controllers if isinstance(entry, NodeLabelController)]
    others = [entry for entry in manager.controllers if entry not in labelers]
    grants = _manager_grants(_watched_namespaces(settings), others)
    grants += (
        Grant(
            role=f"{MANAGER_NAME}-label-nodes-role",
            rules=build_rules(labeler.permissions),
            install_command="kubectl apply --server-side -f "
            "config/components/label-nodes/role.yaml",
            chart_values="rbac.create=true,labelNodes.enabled=true",
        )
        for labeler in labelers
    )
    grants += _webhook_ca_grants(manager, lease_namespace)
    if settings.leader_election or settings.shards > 1:
        role = f"{MANAGER_NAME}-leader-election-role"
        grants.append(
            Grant(role=role, rules=LEADER_RULES, namespace=lease_namespace, namespaced_role=True)
        )
    if settings.metrics_secure:
        grants.append(Grant(role=f"{MANAGER_NAME}-metrics-auth-role", rules=REVIEW_RULES))
    return grants


def _webhook_ca_grants(manager: Manager, namespace: str) -> list[Grant]:
    """The roles of the webhooks' own CA; none without webhooks or with a certificate directory."""
    cluster_wide, namespaced = ca_permissions(
        manager.webhooks, manager.conversions, manager.options.webhooks, name=MANAGER_NAME
    )
    role = f"{MANAGER_NAME}-webhook-ca-role"
    command = "kubectl apply --server-side -f config/components/webhooks/webhook_ca_roles.yaml"
    values = "rbac.create=true,webhooks.enabled=true"
    grants = [
        Grant(
            role=role,
            rules=build_rules(cluster_wide),
            install_command=command,
            chart_values=values,
        ),
        Grant(
            role=role,
            rules=build_rules(namespaced),
            namespace=namespace,
            namespaced_role=True,
            install_command=command,
            chart_values=values,
        ),
    ]
    return [grant for grant in grants if grant.rules]


def _manager_grants(
    namespaces: Sequence[str], controllers: Sequence[Controller[Any]]
) -> list[Grant]:
    """The manager's role; -watch-namespaces splits it into one part for each namespace and one
    for resources without a namespace.
    """
    role = f"{MANAGER_NAME}-manager-role"
    if not namespaces:
        return [Grant(role=role, rules=manager_rules(controllers))]
    permissions = manager_permissions(controllers)
    namespaced = build_rules(
        permission for permission in permissions if permission.kind.definition.namespaced
    )
    cluster_wide = build_rules(
        permission for permission in permissions if not permission.kind.definition.namespaced
    )
    component = "kubectl apply --server-side -f config/components/namespaced"
    return [
        *(
            Grant(
                role=role,
                rules=namespaced,
                namespace=namespace,
                install_command="kubectl apply --server-side -f config/rbac/role.yaml",
                binds_service_account=False,
            )
            for namespace in namespaces
        ),
        Grant(
            role=f"{MANAGER_NAME}-manager-cluster-role",
            rules=cluster_wide,
            install_command=f"{component}/cluster_role.yaml",
            binds_service_account=False,
        ),
        # Kubernetes stores Events about cluster-scoped objects in the namespace default.
        Grant(
            role=f"{MANAGER_NAME}-manager-cluster-events",
            rules=build_rules([EVENT_PERMISSION]),
            namespace="default",
            namespaced_role=True,
            install_command=f"{component}/cluster_events.yaml",
            binds_service_account=False,
        ),
    ]


def _watched_namespaces(settings: Settings) -> Sequence[str]:
    """Empty for all namespaces."""
    return settings.to_options(MANAGER_NAME).watch_namespaces


async def list_vmgroups(cluster: Cluster, settings: Settings) -> list[VmGroup] | None:
    """None if they cannot be read, which other findings report."""
    try:
        return [
            group
            for namespace in _watched_namespaces(settings) or ("",)
            for group in await cluster.client.list(VmGroup, namespace)
        ]
    except NotFound:
        # The CRD is not installed, so no VmGroup exists.
        return []
    except KubewrightError:
        return None


async def build_requests(groups: Sequence[VmGroup], settings: Settings) -> list[VmGroupRequest]:
    limits = await asyncio.to_thread(read_limits, settings.limits_file, settings.allowed_templates)
    return [
        VmGroupRequest(
            namespace=group.metadata.namespace,
            name=group.metadata.name,
            template=group.spec.template,
            placement=placement_names(group.spec.placement),
            limits=limits(group.metadata.namespace),
            is_deleted=group.metadata.deletionTimestamp is not None,
            group=group,
        )
        for group in groups
    ]


def skipped_cluster_finding() -> Finding:
    return warning(
        "cluster",
        "CRDs, permissions and leader were not checked: the API server has to respond first",
    )
