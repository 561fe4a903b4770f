"""Warns if no manager keeps the objects current.

How is that known?  From the Lease, which the manager renews for leader election anyway.
What if the manager runs without leader election?  Then there is no Lease. With --page, the page
    shows which vCenters the manager cannot read. Otherwise the Ready condition of its Pod counts:
    /readyz fails if the process hangs or a watch is dead.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from msgspec import Struct

from kubewright import Key
from kubewright.errors import ConfigError, Forbidden, KubewrightError

from ..leader_lease import (
    LEASE_NAME,
    SYSTEM_NAMESPACE,
    describe_staleness,
    find_leases,
    get_leases,
)
from ..manager_pods import list_manager_pods
from ..topology import model
from .manager_pods import DEFAULT_NAMESPACE
from .page import read_page
from .sources import ClusterReader


class _PageState(Struct, frozen=True):
    """The part of the topology that shows its age."""

    vcenters: list[model.VCenter]


async def warn_of_stale_objects(
    cluster: ClusterReader, lease: str, *, manager_namespace: str = "", page: str = ""
) -> None:
    """`lease` is the Lease as NAMESPACE/NAME; by default it is found by its name."""
    key = parse_lease(lease)
    namespaces = (SYSTEM_NAMESPACE, cluster.connection_namespace)
    try:
        leases, server_time = await asyncio.gather(
            get_leases(cluster.client, [key]) if key else find_leases(cluster.client, namespaces),
            # Not the clock of this machine: a laptop's may be wrong.
            cluster.transport.server_time(),
        )
    except Forbidden:
        name = key or Key(SYSTEM_NAMESPACE, LEASE_NAME)
        cluster.warn(
            f"It is unknown whether a manager keeps the objects current: this user cannot read "
            f"lease {name}."
        )
        return
    except KubewrightError:
        # The command meets the same error and reports it.
        return
    message = describe_staleness(leases, server_time or datetime.now(UTC))
    if not leases and key is None:
        namespace = manager_namespace or DEFAULT_NAMESPACE
        if page:
            message = await _describe_page(page)
        elif (description := await _describe_pods(cluster, namespace)) is not None:
            message = description
    if message:
        cluster.warn(message)


async def _describe_page(address: str) -> str:
    """Which vCenters the manager at this address cannot read; "" if it reads all."""
    try:
        state = await read_page(address, "/topology", _PageState)
    except ConfigError as error:
        return f"It is unknown whether a manager keeps the objects current: {error}."
    return " ".join(
        _describe_vcenter(vcenter) for vcenter in state.vcenters if vcenter.state != "Ready"
    )


def _describe_vcenter(vcenter: model.VCenter) -> str:
    message = vcenter.message or "The manager is loading its inventory."
    if vcenter.accurateUntil is None:
        return f'vCenter "{vcenter.name}" has not been read yet: {message}'
    return (
        f'The objects of vCenter "{vcenter.name}" are as of '
        f"{vcenter.accurateUntil:%Y-%m-%dT%H:%M:%SZ}: {message}"
    )


async def _describe_pods(cluster: ClusterReader, namespace: str) -> str | None:
    """Empty if a manager without leader election is ready, None if the Pods do not show it."""
    try:
        pods = await list_manager_pods(cluster.client, namespace)
    except KubewrightError:
        return None
    # A manager with leader election has a Lease with another name, which --lease has to name.
    if not pods or any(pod.elects_leader for pod in pods):
        return None
    if any(pod.is_ready for pod in pods):
        return ""
    pod = min(pods, key=lambda pod: pod.key)
    condition = pod.ready_condition
    since = (
        f"since {condition.lastTransitionTime:%Y-%m-%dT%H:%M:%SZ}"
        if condition is not None and condition.lastTransitionTime is not None
        else "yet"
    )
    return (
        f"No manager is ready: Pod {pod.key} has not been ready {since}. The objects may be out of "
        "date, whatever their conditions show. Run `manager doctor`."
    )


def parse_lease(text: str) -> Key | None:
    if not text:
        return None
    namespace, separator, name = text.partition("/")
    if not (namespace and separator and name) or "/" in name:
        raise ConfigError(f"--lease {text}: must be NAMESPACE/NAME")
    return Key(namespace, name)
