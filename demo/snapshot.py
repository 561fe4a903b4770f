"""What the cluster says at one moment, read as a user would read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubewright.testing.access import Refused
from kubewright.testing.controlplane import ControlPlane

Object = Mapping[str, Any]
NAMESPACE = "default"
KINDS = {
    "HostInfo": "topology.corinternal.com/v1/hostinfoes",
    "VMInfo": "topology.corinternal.com/v1/vminfoes",
    "FCDInfo": "topology.corinternal.com/v1/fcdinfoes",
    "GPUInfo": "topology.corinternal.com/v1/gpuinfoes",
    "VmGroup": "vm.codeconnect.vmworld.com/v1alpha1/vmgroups",
    "MyCustomResource": "poc.test.domain/v1/mycustomresources",
}
TAIL_BYTES = 16 * 1024


@dataclass(frozen=True)
class Snapshot:
    """Objects by kind and name, recent events and the end of the manager's log, the newest last."""

    objects: Mapping[tuple[str, str], Object]
    events: Sequence[str] = ()
    log: Sequence[str] = ()


def read(plane: ControlPlane, log: Path) -> Snapshot:
    """Ask the API server; it blocks."""
    objects = dict[tuple[str, str], Object]()
    with plane.apiserver.https() as https:
        for kind, path in KINDS.items():
            version, plural = path.rsplit("/", 1)
            for item in listed(https.call, f"/apis/{version}/namespaces/{NAMESPACE}/{plural}"):
                objects[kind, item["metadata"]["name"]] = item
        events = listed(https.call, f"/api/v1/namespaces/{NAMESPACE}/events")
    return Snapshot(objects, [line_of_event(each) for each in sorted(events, key=when)], log_lines(log))


def listed(call: Any, path: str) -> list[Any]:
    """The items of a list; none before its kind is known."""
    try:
        return list(call("GET", path)["items"])
    except Refused:
        return []


def when(event: Object) -> str:
    """When it was last seen."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])


def line_of_event(event: Object) -> str:
    """One event for people."""
    about = event["involvedObject"]
    return f"{when(event)[11:19]} {about['kind']}/{about['name']} {event['reason']}: {event['message']}"


def log_lines(log: Path) -> list[str]:
    """The last whole lines of the manager's log for people."""
    if not log.exists():
        return []
    start = max(log.stat().st_size - TAIL_BYTES, 0)
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").split("\n")
    # The tail may begin inside a line, at a brace even, and the last line may still be in writing.
    return [line_of_log(each) for each in lines[1 if start else 0 : -1] if each.startswith("{") and each.endswith("}")]


def line_of_log(line: str) -> str:
    """Time, level, words and the object of one line."""
    said = json.loads(line)
    about: Object = next((said[each] for each in ("object", "resource", "key") if isinstance(said.get(each), dict)), {})
    name = f" {about['name']}" if about.get("name") else ""
    return f"{str(said['ts'])[11:19]} {said['level']:<5} {said['msg']}{name}"
