"""The pictures of the documentation, described in boxes and arrows."""

from __future__ import annotations

from .drawing import Arrow, Box, Drawing

ARCHITECTURE = Drawing(
    title="One manager between the API server and the vCenters: a key travels through it, and what is known of vCenter is in memory",
    width=1000,
    height=560,
    boxes={
        "people": Box(20, 20, 150, 60, "people, programs", ("kubectl, Prometheus",), "outside"),
        "api": Box(20, 120, 150, 420, "Kubernetes", ("API server",), "outside"),
        "vcenter": Box(830, 120, 150, 420, "vCenter", ("one or several",), "outside"),
        "manager": Box(
            220, 20, 560, 520, "manager (one leads, others stand by)", (), "frame", text_at_top=True
        ),
        "server": Box(240, 60, 200, 50, "server", ("/metrics /healthz /readyz",)),
        "leader": Box(560, 60, 200, 50, "leader", ("the Lease; asked before each act",)),
        "reflector": Box(240, 140, 130, 60, "reflector", ("list, watch",)),
        "cache": Box(240, 230, 130, 60, "cache", ("all objects, indexed",)),
        "source": Box(420, 230, 150, 60, "source", ("what changed -> keys",)),
        "queue": Box(420, 320, 150, 60, "workqueue", ("each key once", "one worker a key")),
        "inventory": Box(620, 230, 140, 60, "inventory", ("hosts, VMs, disks, tags",)),
        "session": Box(620, 140, 140, 60, "session", ("one login; updates", "by one open call")),
        "kind": Box(
            420,
            400,
            150,
            100,
            "reconcile(obj)",
            ("six kinds; the answer", "is a pure function"),
            "yours",
        ),
        "status": Box(240, 420, 130, 60, "status", ("one conditional", "patch, or none")),
        "operations": Box(
            635, 440, 130, 60, "task_limiter", ("clone, power, destroy", "3 at once, fair")
        ),
        "recorder": Box(240, 490, 130, 36, "recorder", ()),
    },
    arrows=[
        Arrow("people", "right", "server", "left", end_shift=-8),
        Arrow("people", "bottom", "api", "top"),
        Arrow("api", "right", "reflector", "left", "watch", start_shift=-160),
        Arrow("reflector", "bottom", "cache", "top"),
        Arrow("cache", "right", "source", "left"),
        Arrow("source", "bottom", "queue", "top", "keys", label_dx=22, label_dy=4),
        Arrow("queue", "bottom", "kind", "top", "engine", label_dx=26, label_dy=4),
        Arrow("kind", "left", "status", "right"),
        Arrow("kind", "right", "operations", "left", "VmGroup", start_shift=20),
        Arrow("status", "left", "api", "right", "patch", end_shift=120),
        Arrow("recorder", "left", "api", "right", "Events", end_shift=178),
        Arrow("vcenter", "left", "session", "right", "push", start_shift=-160),
        Arrow("session", "bottom", "inventory", "top"),
        Arrow("inventory", "left", "source", "right"),
        Arrow("inventory", "bottom", "kind", "right", end_shift=-30),
        Arrow("operations", "right", "vcenter", "left", "tasks", end_shift=140),
    ],
)
REPLICA_LIFECYCLE = Drawing(
    title="The life of a VmGroup's replica: it is recorded before anything is sent, and a record that leaves never comes back",
    width=860,
    height=250,
    boxes={
        "none": Box(20, 40, 110, 60, "(none)", ("too few replicas",), "outside"),
        "planned": Box(210, 40, 130, 60, "Planned", ("stored, not sent",)),
        "cloning": Box(450, 40, 130, 60, "Cloning", ("a task runs",)),
        "present": Box(700, 40, 130, 60, "Present", ("the VM is there",)),
        "leaving": Box(450, 170, 130, 60, "leaving", ("powered off,", "destroyed")),
        "gone": Box(210, 170, 130, 60, "record dropped", ("nothing is under way",), "outside"),
    },
    arrows=[
        Arrow("none", "right", "planned", "left", "stored first"),
        Arrow(
            "planned", "right", "cloning", "left", "sent, answered", start_shift=-12, end_shift=-12
        ),
        Arrow(
            "cloning",
            "left",
            "planned",
            "right",
            "failed: stored anew",
            start_shift=16,
            end_shift=16,
            label_dy=16,
        ),
        Arrow("cloning", "right", "present", "left", "VM seen", start_shift=-12, end_shift=-12),
        Arrow("present", "bottom", "leaving", "right", "one too many", label_dx=20, label_dy=44),
        Arrow("planned", "bottom", "gone", "top", "not wanted", label_dx=36, label_dy=6),
        Arrow("cloning", "bottom", "leaving", "top", "not wanted", label_dx=36, label_dy=6),
        Arrow("leaving", "left", "gone", "right", "VM gone"),
    ],
)


def render() -> dict[str, str]:
    """Every picture by its name."""
    return {"architecture": ARCHITECTURE.svg(), "replica": REPLICA_LIFECYCLE.svg()}
