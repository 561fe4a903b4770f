"""Settings -> the controller of GPUInfo with all that it stands on: facts of nodes, the calendar, the standing questions."""

from __future__ import annotations

from datetime import UTC, datetime

from kubewright import Manager, Object
from kubewright.log import Log

from .kinds.gpuinfo.calendar import Almanac
from .kinds.gpuinfo.controller import GPUInfoController
from .kinds.gpuinfo.labels import LabellingGPUInfoController, Leftovers
from .kinds.gpuinfo.tracker import Nodes
from .settings.flags import Settings
from .vcenters.registry import VCenters


def now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


def placing(manager: Manager, vcenters: VCenters, settings: Settings) -> GPUInfoController:
    """The controller, with its services added to the manager."""
    flags = settings.gpu

    def complain(obj: Object, reason: str, words: str) -> None:
        manager.recorder.event(obj, obj.definition, "Warning", reason, words)

    told, simulation = flags.resource_names, flags.simulation()
    nodes = Nodes(manager.cache, vcenters.opened, now, complain, log=Log("nodes"), resources=told, simulation=simulation)
    manager.on_lead.append(nodes.say_again)
    calendar = None
    if flags.calendar_key is not None:
        calendar = Almanac(flags.calendar_key, manager.client, manager.metrics, nodes.plan, complain, Log("calendar"))
        manager.add_service(calendar)
        manager.on_lead.append(calendar.say_again)
    made = (LabellingGPUInfoController if flags.label else GPUInfoController)(
        nodes,
        vcenters.opened,
        manager.cache,
        flags.rules,
        manager.recorder,
        interval_seconds=settings.stats_interval_seconds,
        share=settings.stats_change_percent / 100,
        calendar=calendar,
    )
    manager.add_service(made.questions)
    if isinstance(made, LabellingGPUInfoController):
        return made.use(manager.client)
    manager.add_service(Leftovers(manager.cache, manager.client, manager.recorder, Log("labels")))
    return made
