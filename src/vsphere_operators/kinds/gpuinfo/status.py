"""The status and the Ready condition of a GPUInfo, from a Selection; and when time changes them."""

from __future__ import annotations

from datetime import UTC
from functools import partial

from kubewright import Done, Waiting

from .ranking import Selection
from .rules import NodeFacts, Query
from .types import (
    NONE_AVAILABLE,
    Candidate,
    GPUInfoSpec,
    GPUInfoStatus,
    Reason,
    UnmatchedNode,
    UnmatchedNodes,
)

# Windows begin at full hours, for hundreds of nodes and thousands of objects at once. Their
# reconciles are spread over this time: briefly if the selected node changes, else longer.
_RESELECT_SPREAD_SECONDS, _REFRESH_SPREAD_SECONDS = 0.5, 30.0
_MAX_REQUEUE_SECONDS = 86400.0


def selection_status_of(selection: Selection, *, simulated: bool) -> GPUInfoStatus:
    selected, query = selection.selected, selection.query
    hours = query.rules.available_hours(selected, query.now) if selected else 0
    unmatched = [
        UnmatchedNode(node=facts.name, reason=failure.reason.value, message=failure.message)
        for facts in selection.unmatched_nodes
        if (failure := facts.match_failure) is not None
    ]
    return GPUInfoStatus(
        suitableNodeName=selected.name if selected else NONE_AVAILABLE,
        suitableHostName=selected.host_name if selected else NONE_AVAILABLE,
        nodeMemoryUsage=selected.usage.guest_memory_mb if selected else 0,
        nodeCPUUsage=selected.usage.cpu_demand_mhz if selected else 0,
        availableAcceleratorTime=hours,
        candidates=[_build_candidate(facts, query) for facts in selection.candidates] or None,
        refused=dict(selection.rejection_counts) or None,
        unmatched=UnmatchedNodes(nodes=unmatched, more=selection.omitted_unmatched_count)
        if unmatched
        else None,
        simulated=simulated or None,
    )


def _build_candidate(facts: NodeFacts, query: Query) -> Candidate:
    window = facts.next_window
    start = window.start.astimezone(UTC).replace(microsecond=0) if window else None
    return Candidate(
        node=facts.name,
        host=facts.host_name or None,
        vm=facts.vm_name or None,
        matchedBy=facts.matched_by or None,
        vcenter=facts.vcenter_name or None,
        availableHours=query.rules.available_hours(facts, query.now),
        nextMaintenance=start,
        maintenanceSource=window.source if window else None,
        cpuDemandMHz=facts.usage.cpu_demand_mhz,
        guestMemoryMB=facts.usage.guest_memory_mb,
        freeMemoryMB=facts.free_memory_mb,
        gpus=list(facts.gpus) or (["simulated"] if facts.simulated_gpu else None),
        hostDevices=list(facts.host_devices) or None,
    )


def ready_outcome(spec: GPUInfoSpec, selection: Selection, *, simulated: bool) -> Done | Waiting:
    """Done for a selected node. Without one the object waits for a node that matches."""
    total = selection.suitable_count + sum(selection.rejection_counts.values())
    if selection.selected is not None:
        reason, count = Reason.NODE_CHOSEN, selection.suitable_count
        matching = f"{count} of {total} nodes {'matches' if count == 1 else 'match'}"
        message = f'Selected node "{selection.selected.name}": {matching}.'
    else:
        reason = Reason.NONE_AVAILABLE
        counts = ", ".join(f"{n} {why}" for why, n in selection.rejection_counts.items())
        if total == 0:
            message = "The cluster has no nodes."
        elif total == 1:
            message = f"The only node does not match: {counts}."
        else:
            message = f"None of {total} nodes matches: {counts}."
    match spec.desAccTime, spec.gpuRequired:
        case None, None:
            message += " spec.desAccTime and spec.gpuRequired are not set;"
            message += " defaulting to 0 hours and no GPU."
        case None, _:
            message += " spec.desAccTime is not set; defaulting to 0 hours."
        case _, None:
            message += " spec.gpuRequired is not set; defaulting to no GPU."
    if simulated:
        message += " Hours and GPUs are simulated (-accelerator-source=simulated);"
        message += " do not schedule real jobs by them."
    return Waiting(reason, message) if selection.selected is None else Done(reason, message)


def seconds_until_change(
    selection: Selection, *, interval_seconds: float, spread: float
) -> float | None:
    """When time alone changes the status; None for never.

    The selected node and its hours are shown on time. The hours of other candidates and the counts
    change the status at most once per interval. `spread` (0 to 1) delays this object by a fraction
    of the spread time, so that objects do not reconcile at once.
    """
    selected, query = selection.selected, selection.query
    if selected is None:
        return None
    seconds_until_hours_change = partial(query.rules.seconds_until_hours_change, now=query.now)
    candidate_delays = map(seconds_until_hours_change, selection.candidates[1:])
    refresh_delays = [seconds_until_hours_change(selected)] + [
        max(seconds, interval_seconds)
        for seconds in (*candidate_delays, selection.seconds_until_fewer_suitable)
        if seconds is not None
    ]
    delays = [
        seconds + spread * _REFRESH_SPREAD_SECONDS
        for seconds in refresh_delays
        if seconds is not None
    ]
    if (reselect_delay := query.seconds_until_too_little_time(selected)) is not None:
        delays.append(reselect_delay + spread * _RESELECT_SPREAD_SECONDS)
    # A timer follows a clock that may stop while the machine sleeps, so none is longer than a day.
    max_delay = _MAX_REQUEUE_SECONDS + spread * _REFRESH_SPREAD_SECONDS
    return min(*delays, max_delay) if delays else None
