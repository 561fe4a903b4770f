"""Checks that all contenders store the same statuses: of each host and VM, and at a cold start.

Only lastTransitionTime may differ. The statuses of the manager are the reference, because its tests
compare them with what pyVmomi reads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import msgspec

from bench.cluster import BenchCluster, BenchError, SampleSet
from bench.product.contenders import MANAGER, Contender
from bench.product.environment import Environment, new_objects
from bench.run import measure_process
from kubewright.transport import Request
from vsphere_operators.kinds.hostinfo import HostInfo
from vsphere_operators.kinds.vminfo import VMInfo

_KINDS = (HostInfo, VMInfo)
# Fields of a status that are not facts of the host or VM.
_FIELDS_OF_THE_OBJECT = ("conditions", "observedGeneration")
_LIST_TIMEOUT_SECONDS = 120
_PAGE_SIZE = 1_000


@dataclass(frozen=True)
class Reference:
    """The statuses of the manager, by kind and by name of the host or VM."""

    statuses: dict[str, dict[str, Any]]

    async def check(self, cluster: BenchCluster, samples: SampleSet, contender: str) -> None:
        """Raises if an object has another status than the manager writes."""
        expected = self.statuses[cluster.workload.kind.definition.name]
        for name, status in await _read_statuses(cluster, samples):
            if status != expected[name]:
                raise BenchError(
                    f"{contender} does not store the status of the manager for {name}, so their "
                    f"figures cannot be compared.\n{contender}: {status}\nmanager: {expected[name]}"
                )


async def check_equal_work(environment: Environment, contenders: Sequence[Contender]) -> Reference:
    """Lets each contender write one status for each host and VM. This is also the warm-up."""
    statuses = {
        kind.definition.name: dict(await _write_statuses(environment, MANAGER, kind))
        for kind in _KINDS
    }
    environment.write_facts(
        {
            kind: {
                name: _without(status, _FIELDS_OF_THE_OBJECT) for name, status in by_name.items()
            }
            for kind, by_name in statuses.items()
        }
    )
    reference = Reference(statuses)
    for contender in contenders:
        if contender is not MANAGER:
            for kind in _KINDS:
                await _write_statuses(environment, contender, kind, reference)
    return reference


async def _write_statuses(
    environment: Environment,
    contender: Contender,
    kind: type[HostInfo] | type[VMInfo],
    reference: Reference | None = None,
) -> list[tuple[str, Any]]:
    cluster = environment.cluster_for(kind)
    count = len(environment.vm_names if kind is VMInfo else environment.host_names)
    namespace = f"equal-{contender.slug}-{kind.definition.name.lower()}"
    async with new_objects(cluster, namespace, count) as samples:
        async with measure_process(cluster, environment.create_process(contender), samples):
            pass
        if reference:
            await reference.check(cluster, samples, contender.name)
        return await _read_statuses(cluster, samples)


async def _read_statuses(cluster: BenchCluster, samples: SampleSet) -> list[tuple[str, Any]]:
    """The name of the host or VM and the status of each object."""
    statuses = []
    async for item in _read_objects(cluster, samples):
        status = item["status"]
        status["conditions"] = [
            _without(condition, ("lastTransitionTime",)) for condition in status["conditions"]
        ]
        (name,) = item["spec"].values()
        statuses.append((name, status))
    return statuses


async def _read_objects(cluster: BenchCluster, samples: SampleSet) -> AsyncIterator[dict[str, Any]]:
    """In pages: a response is limited to 8 MiB."""
    token = ""
    while True:
        query = {"limit": str(_PAGE_SIZE), **({"continue": token} if token else {})}
        body = await cluster.transport.send(
            Request(
                "GET",
                cluster.workload.kind.definition.path(samples.namespace),
                query=urlencode(query),
                operation="read the statuses",
                timeout_seconds=_LIST_TIMEOUT_SECONDS,
            )
        )
        page = msgspec.json.decode(body)
        for item in page["items"]:
            yield item
        if not (token := page["metadata"].get("continue", "")):
            return


def _without(fields: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}
