"""What the fields of a Pod mean for its service, as rows of JSON, and the search over Pods."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from heapq import nsmallest

from msgspec import Struct

from kubewright.builtin import Pod
from kubewright.kind import OwnerReference

FINISHED_PHASES = ("Succeeded", "Failed")
MAX_SEARCH_LENGTH = 200
_MAX_FOUND_PODS = 50
# Searched between two turns of the event loop: 50,000 Pods take up to 63 ms.
_SEARCH_SLICE_SIZE = 2_000
# The owner of a static Pod is its Node.
_NODE_BOUND_CONTROLLERS = ("DaemonSet", "Node")


class PodRow(Struct, frozen=True, kw_only=True):
    namespace: str
    name: str
    # Empty for a Pod that is not scheduled.
    node: str
    phase: str
    ready: bool
    # Such as "StatefulSet web"; empty for a Pod without a controller.
    controller: str


class FoundPods(Struct, frozen=True, kw_only=True):
    """The Pods that a search finds; `omittedPods` counts those beyond the limit."""

    search: str
    pods: list[PodRow]
    omittedPods: int
    problems: list[str]


def find_controller(pod: Pod) -> OwnerReference | None:
    return next((owner for owner in pod.metadata.ownerReferences if owner.controller), None)


def describe_controller(pod: Pod) -> str:
    owner = find_controller(pod)
    return f"{owner.kind} {owner.name}" if owner is not None else ""


def is_bound_to_node(pod: Pod) -> bool:
    """Whether it is a Pod of a DaemonSet or a static Pod, which never moves to another Node."""
    owner = find_controller(pod)
    return owner is not None and owner.kind in _NODE_BOUND_CONTROLLERS


def is_serving(pod: Pod) -> bool:
    """Running, ready and not being deleted: what counts for a Service and for a budget."""
    return (
        pod.status.phase == "Running"
        and pod.metadata.deletionTimestamp is None
        and any(
            condition.type == "Ready" and condition.status == "True"
            for condition in pod.status.conditions
        )
    )


def build_pod_row(pod: Pod) -> PodRow:
    return PodRow(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        node=pod.spec.nodeName,
        phase=pod.status.phase,
        ready=is_serving(pod),
        controller=describe_controller(pod),
    )


async def search_pods(pods: Sequence[Pod], text: str, problems: list[str]) -> FoundPods:
    """Those with the text in `namespace/name`, in any letter case.

    Names that begin with the text come first, then by namespace and name.
    """
    # Names of Pods and namespaces are in lower case.
    lowered, first, count = text.lower(), list[tuple[bool, str, str, Pod]](), 0
    for start in range(0, len(pods), _SEARCH_SLICE_SIZE):
        matching = [
            (not metadata.name.startswith(lowered), metadata.namespace, metadata.name, pod)
            for pod in pods[start : start + _SEARCH_SLICE_SIZE]
            if lowered in f"{(metadata := pod.metadata).namespace}/{metadata.name}"
        ]
        count += len(matching)
        # Namespace and name are unique, so Pods are never compared.
        first = nsmallest(_MAX_FOUND_PODS, first + matching)
        await asyncio.sleep(0)
    return FoundPods(
        search=text,
        pods=[build_pod_row(pod) for *_, pod in first],
        omittedPods=count - len(first),
        problems=problems,
    )
