"""The Kubernetes side: where it is, whether it answers, and what is there of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from kubewright import Client, Controller, Key, Manager, Object
from kubewright.errors import KubewrightError, Unauthorized
from kubewright.kubeconfig import Connection, load_config
from kubewright.manager import parse_server_version
from kubewright.rbac import (
    EVENT_PERMISSION,
    LEADER_RULES,
    REVIEW_RULES,
    build_rules,
    manager_permissions,
    manager_rules,
)
from kubewright.transport import Request, Transport
from kubewright.webhook.rbac import cluster_permissions, namespace_permissions

from ..kinds.vmgroup.limits import read_limits
from ..kinds.vmgroup.types import VmGroup
from ..settings.flags import Settings
from . import crds, lease, rbac
from .clock import check_clock_skew
from .finding import Finding, ok, problem, run_check, warning
from .placement import VmGroupRequest
from .rbac import Grant

MANAGER_NAME = "vsphere-operators"
SYSTEM_NAMESPACE = f"{MANAGER_NAME}-system"
REQUEST_TIMEOUT_SECONDS = 10.0


class Cluster(Struct, frozen=True, kw_only=True):
    """One API server, connected."""

    connection: Connection
    transport: Transport

    @property
    def client(self) -> Client:
        """Reads and asks; it writes nothing."""
        return Client(self.transport, field_manager="doctor")


def load_connection(settings: Settings, environ: Mapping[str, str]) -> Connection | Finding:
    """Where the manager would connect to, or why nowhere. It reads files, and so blocks."""
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
            "export KUBECONFIG=FILE   # as kubectl has it; or: manager doctor -kubeconfig=FILE",
        )


async def check_api_server(cluster: Cluster) -> AsyncIterator[Finding]:
    """Whether it answers, as whom it knows us, and what time it is there. Without a problem the rest can be asked."""
    connection = cluster.connection
    yield ok("kubeconfig", f"{connection.server}, from {connection.source}")
    request = Request(
        "GET", "/version", operation="reach the API server", timeout_seconds=REQUEST_TIMEOUT_SECONDS
    )
    try:
        version = parse_server_version(await cluster.transport.send(request))
        user = await rbac.whoami(cluster.client)
    except Unauthorized as error:
        words = f"{error}. The credential of this kubeconfig is missing, wrong or expired."
        yield problem(
            "API server",
            words,
            "kubectl auth whoami   # with the same kubeconfig; then log in to the cluster again",
        )
        return
    except KubewrightError as error:
        yield problem("API server", str(error), "kubectl cluster-info")
        return
    yield ok("API server", f'{version} answers, and knows us as "{user}"')
    if (theirs := await cluster.transport.server_time()) is not None:
        yield check_clock_skew(theirs, datetime.now(UTC), "the API server")


async def check_cluster(
    cluster: Cluster, settings: Settings, manager: Manager
) -> AsyncIterator[Finding]:
    """All that needs an API server which answers; the manager is one that these settings make."""
    client = cluster.client
    kinds: list[type[Object]] = [each.kind for each in manager.controllers]
    user = await rbac.whoami(client)
    key = Key(
        settings.leader_election_namespace or cluster.connection.namespace,
        settings.leader_election_id or f"{MANAGER_NAME}-leader",
    )
    places = list(dict.fromkeys((key, Key(SYSTEM_NAMESPACE, key.name))))
    for subject, check in (
        ("CRDs", crds.check(client, kinds)),
        ("rights", rbac.check(client, user, _required_grants(settings, manager, key.namespace))),
        ("leader", lease.check_lease(client, places, leader_election=settings.leader_election)),
    ):
        async for finding in run_check(subject, check):
            yield finding


def _required_grants(settings: Settings, manager: Manager, lease_namespace: str) -> list[Grant]:
    """The generated roles that these settings need."""
    found = manager_grants(_watched_namespaces(settings), manager.controllers) + webhook_ca_grants(
        manager, lease_namespace
    )
    if settings.leader_election:
        role = f"{MANAGER_NAME}-leader-election-role"
        found.append(
            Grant(role=role, rules=LEADER_RULES, namespace=lease_namespace, namespaced_role=True)
        )
    if settings.metrics_secure:
        found.append(Grant(role=f"{MANAGER_NAME}-metrics-auth-role", rules=REVIEW_RULES))
    return found


def webhook_ca_grants(manager: Manager, namespace: str) -> list[Grant]:
    """What the webhooks' own CA needs; nothing where there are none, or where the certificate comes from files."""
    told = (manager.webhooks, manager.conversions, manager.options.webhooks)
    wide, narrow = (
        build_rules(cluster_permissions(*told, name=MANAGER_NAME)),
        build_rules(namespace_permissions(*told, name=MANAGER_NAME)),
    )
    role, made_by = (
        f"{MANAGER_NAME}-webhook-ca-role",
        "kubectl apply -f config/components/webhooks/webhook_ca_roles.yaml",
    )
    found = [
        Grant(role=role, rules=wide, install_command=made_by),
        Grant(
            role=role,
            rules=narrow,
            namespace=namespace,
            namespaced_role=True,
            install_command=made_by,
        ),
    ]
    return [each for each in found if each.rules]


def manager_grants(
    namespaces: Sequence[str], controllers: Sequence[Controller[Any]]
) -> list[Grant]:
    """The manager's own role; with -watch-namespaces it has to hold in these alone, and everywhere only for what is in no namespace."""
    role = f"{MANAGER_NAME}-manager-role"
    if not namespaces:
        return [Grant(role=role, rules=manager_rules(controllers))]
    needed = manager_permissions(controllers)
    inside = build_rules(right for right in needed if right.kind.definition.namespaced)
    outside = build_rules(right for right in needed if not right.kind.definition.namespaced)
    here, made_by = (
        "kubectl apply -f config/rbac/role.yaml",
        "kubectl apply -f config/components/namespaced",
    )
    return [
        *(
            Grant(
                role=role,
                rules=inside,
                namespace=each,
                install_command=here,
                binds_service_account=False,
            )
            for each in namespaces
        ),
        Grant(
            role=f"{MANAGER_NAME}-manager-cluster-role",
            rules=outside,
            install_command=f"{made_by}/cluster_role.yaml",
            binds_service_account=False,
        ),
        # Events about what is in no namespace live in this one.
        Grant(
            role=f"{MANAGER_NAME}-manager-cluster-events",
            rules=build_rules([EVENT_PERMISSION]),
            namespace="default",
            namespaced_role=True,
            install_command=f"{made_by}/cluster_events.yaml",
            binds_service_account=False,
        ),
    ]


def _watched_namespaces(settings: Settings) -> Sequence[str]:
    """The namespaces that the manager is confined to; none of them is all."""
    return settings.to_options(MANAGER_NAME).watch_namespaces


async def list_vmgroup_requests(cluster: Cluster, settings: Settings) -> list[VmGroupRequest]:
    """What the VmGroups ask for; none where they cannot be read, which other lines tell."""
    try:
        every = [
            each
            for namespace in _watched_namespaces(settings) or ("",)
            for each in await cluster.client.list(VmGroup, namespace)
        ]
    except KubewrightError:
        return []
    limits = await asyncio.to_thread(read_limits, settings.limits_file)
    return [
        VmGroupRequest(
            namespace=each.metadata.namespace,
            name=each.metadata.name,
            template=each.spec.template,
            placement=each.spec.requested_placement,
            limits=limits(each.metadata.namespace),
        )
        for each in every
        if not each.deleting
    ]


def skipped_cluster_finding() -> Finding:
    """In place of all that an API server would have told."""
    return warning(
        "cluster",
        "CRDs, rights and the leader were not looked at: first the API server has to answer",
    )
