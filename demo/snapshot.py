"""What the cluster says at one moment, read as a user would read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.http import HttpError

from .log import LogLine, read_log_tail

Object = Mapping[str, Any]
NAMESPACE = "default"
KIND_PATHS = {
    "HostInfo": "topology.corinternal.com/v1/hostinfoes",
    "VMInfo": "topology.corinternal.com/v1/vminfoes",
    "FCDInfo": "topology.corinternal.com/v1/fcdinfoes",
    "GPUInfo": "topology.corinternal.com/v1/gpuinfoes",
    "VmGroup": "vm.codeconnect.vmworld.com/v1alpha1/vmgroups",
    "MyCustomResource": "poc.test.domain/v1/mycustomresources",
}


@dataclass(frozen=True)
class Snapshot:
    """Objects by kind and name, recent events and the end of the manager's log, the newest last."""

    objects: Mapping[tuple[str, str], Object]
    events: Sequence[str] = ()
    log: Sequence[LogLine] = ()


def read_snapshot(plane: ControlPlane, log: Path) -> Snapshot:
    """Ask the API server; it blocks."""
    objects = dict[tuple[str, str], Object]()
    with plane.apiserver.admin_client() as https:
        for kind, path in KIND_PATHS.items():
            version, plural = path.rsplit("/", 1)
            for item in list_items(https.call, f"/apis/{version}/namespaces/{NAMESPACE}/{plural}"):
                objects[kind, item["metadata"]["name"]] = item
        events = list_items(https.call, f"/api/v1/namespaces/{NAMESPACE}/events")
    return Snapshot(
        objects, [format_event(each) for each in sorted(events, key=event_time)], read_log_tail(log)
    )


def list_items(call: Any, path: str) -> list[Any]:
    """The items of a list; none before its kind is known."""
    try:
        return list(call("GET", path)["items"])
    except HttpError:
        return []


def event_time(event: Object) -> str:
    """When it was last seen."""
    return str(
        event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"]["creationTimestamp"]
    )


def format_event(event: Object) -> str:
    """One event for people; the API server's own may lack everything but its time."""
    about = event["involvedObject"]
    return f"{event_time(event)[11:19]} {about.get('kind', '')}/{about.get('name', '')} {event.get('reason', '')}: {event.get('message', '')}"
