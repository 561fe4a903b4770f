"""What the contenders of a benchmark work on: N objects, and how a watch shows that one is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from bench.sample import Sample, SampleSpec
from kubewright import Object, ObjectMeta


class WatchedSpec(msgspec.Struct, gc=False):
    size: int = 0


class WatchedCondition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""


class WatchedStatus(msgspec.Struct, gc=False):
    doubled: int | None = None
    address: str | None = None
    freeCPU: int | None = None
    phase: str | None = None
    suitableNodeName: str | None = None
    observedGeneration: int | None = None
    conditions: list[WatchedCondition] = []


class WatchedMetadata(msgspec.Struct, gc=False):
    name: str = ""
    resourceVersion: str = ""
    generation: int = 0


class WatchedObject(msgspec.Struct, gc=False):
    metadata: WatchedMetadata
    spec: WatchedSpec | None = None
    status: WatchedStatus | None = None


@dataclass(frozen=True)
class Workload:
    kind: type[Object]
    create: Callable[[ObjectMeta, int], Object]
    is_done: Callable[[WatchedObject], bool]
    child_kinds: tuple[type[Object], ...] = ()
    """The kinds of the objects that a contender creates."""


def _is_doubled(obj: WatchedObject) -> bool:
    return bool(obj.spec and obj.status and obj.status.doubled == 2 * obj.spec.size)


SAMPLES = Workload(
    Sample,
    lambda metadata, number: Sample(metadata=metadata, spec=SampleSpec(size=number)),
    _is_doubled,
)
