"""Settings -> the controller of GPUInfo with all that it stands on: facts of nodes, the calendar, the standing questions."""

from __future__ import annotations

from datetime import UTC, datetime

from kubewright import Manager, Object
from kubewright.log import Log

from .kinds.gpuinfo.calendar import CalendarWatcher
from .kinds.gpuinfo.controller import GPUInfoController
from .kinds.gpuinfo.labels import LabelCleanup, LabellingGPUInfoController
from .kinds.gpuinfo.tracker import NodeTracker
from .settings.flags import Settings
from .vcenters.registry import VCenterRegistry


def _utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


def build_gpuinfo_controller(
    manager: Manager, vcenters: VCenterRegistry, settings: Settings
) -> GPUInfoController:
    """The controller, with its services added to the manager."""
    flags = settings.gpu

    def complain(obj: Object, reason: str, words: str) -> None:
        manager.recorder.event(obj, obj.definition, "Warning", reason, words)

    told, simulation = flags.gpu_resource_globs, flags.build_simulation()
    nodes = NodeTracker(
        manager.cache,
        vcenters.vcenters_by_name,
        _utc_now,
        complain,
        log=Log("nodes"),
        gpu_resource_globs=told,
        simulation=simulation,
    )
    manager.on_started_leading.append(nodes.repeat_warnings)
    calendar = None
    if flags.calendar_key is not None:
        calendar = CalendarWatcher(
            flags.calendar_key,
            manager.client,
            manager.metrics,
            nodes.set_calendar_entries,
            complain,
            Log("calendar"),
        )
        manager.add_runnable(calendar)
        manager.on_started_leading.append(calendar.repeat_warnings)
    made = (LabellingGPUInfoController if flags.label_nodes else GPUInfoController)(
        nodes,
        vcenters.vcenters_by_name,
        manager.cache,
        flags.selection_rules,
        manager.recorder,
        interval_seconds=settings.stats_interval_seconds,
        change_fraction=settings.stats_change_percent / 100,
        calendar=calendar,
    )
    manager.add_runnable(made.subscriptions)
    if isinstance(made, LabellingGPUInfoController):
        return made.with_client(manager.client)
    manager.add_runnable(
        LabelCleanup(manager.cache, manager.client, manager.recorder, Log("labels"))
    )
    return made
