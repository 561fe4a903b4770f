"""Objects, Events and log at one moment, read as a user would read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubewright.testing.cluster_access import HttpError
from kubewright.testing.controlplane import ControlPlane

from .log import LogLine, read_log_tail
from .manager import ManagerState

Object = Mapping[str, Any]
_NAMESPACE = "default"
KIND_PATHS = {
    "HostInfo": "topology.corinternal.com/v1/hostinfoes",
    "VMInfo": "topology.corinternal.com/v1/vminfoes",
    "FCDInfo": "topology.corinternal.com/v1/fcdinfoes",
    "DatastoreInfo": "topology.corinternal.com/v1/datastoreinfoes",
    "ClusterInfo": "topology.corinternal.com/v1/clusterinfoes",
    "GPUInfo": "topology.corinternal.com/v1/gpuinfoes",
    "VmGroup": "vm.codeconnect.vmworld.com/v1alpha1/vmgroups",
    "MyCustomResource": "poc.test.domain/v1/mycustomresources",
}


@dataclass(frozen=True)
class Snapshot:
    """Objects by kind and name, Events and the end of the manager's log, both oldest first."""

    objects: Mapping[tuple[str, str], Object]
    events: Sequence[str] = ()
    log: Sequence[LogLine] = ()
    manager: ManagerState = ManagerState()
    # A line about what the demo's script did last.
    script: str = ""


def read_snapshot(plane: ControlPlane, log: Path) -> Snapshot:
    """Blocks while it calls the API server."""
    objects = dict[tuple[str, str], Object]()
    with plane.apiserver.admin_client() as https:
        for kind, path in KIND_PATHS.items():
            version, plural = path.rsplit("/", 1)
            for item in _list_items(
                https.call, f"/apis/{version}/namespaces/{_NAMESPACE}/{plural}"
            ):
                objects[kind, item["metadata"]["name"]] = item
        events = _list_items(https.call, f"/api/v1/namespaces/{_NAMESPACE}/events")
    return Snapshot(
        objects,
        [format_event(event) for event in sorted(events, key=event_order)],
        read_log_tail(log),
    )


def _list_items(call: Any, path: str) -> list[Any]:
    # Before its CRD is established, a kind is not served.
    try:
        return list(call("GET", path)["items"])
    except HttpError:
        return []


def _event_time(event: Object) -> str:
    return str(
        event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"]["creationTimestamp"]
    )


def event_order(event: Object) -> tuple[str, int]:
    """By time, then by the order of the writes.

    The times have whole seconds. The resourceVersion is from etcd's counter, and the manager writes
    one Event after the other.
    """
    return _event_time(event)[:19], int(event["metadata"].get("resourceVersion") or 0)


def format_event(event: Object) -> str:
    # Events of the API server about itself may lack every field but the time.
    involved = event["involvedObject"]
    name = f"{involved.get('kind', '')}/{involved.get('name', '')}"
    return (
        f"{_event_time(event)[11:19]} {name} {event.get('reason', '')}: {event.get('message', '')}"
    )
