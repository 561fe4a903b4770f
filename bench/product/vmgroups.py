"""A start with VmGroups of one VM each, until all are RUNNING.

Only the manager runs. An operator that counts VMs and clones the difference does not do equal work:
it keeps no records, so that a crash or a slow clone gives too many VMs.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.product.cold_start import cold_start_figures
from bench.product.contenders import Contender
from bench.product.environment import TEMPLATE, Environment, new_objects
from bench.product.equal_work import Reference
from bench.run import measure_process
from bench.workload import WatchedObject, Workload
from kubewright import ObjectMeta
from vsphere_operators.kinds.vmgroup.types import VmGroup, VmGroupSpec


@dataclass(frozen=True)
class VmGroups:
    count: int

    async def measure(
        self, environment: Environment, reference: Reference, contender: Contender, name: str
    ) -> dict[str, float]:
        cluster = environment.hosts.with_workload(_WORKLOAD)
        async with new_objects(cluster, name, self.count) as samples:
            process = environment.create_process(contender)
            async with measure_process(cluster, process, samples) as run:
                # While the manager runs: it deletes the VMs and removes the finalizer.
                await cluster.delete_samples(samples)
        return cold_start_figures(run, self.count)


def _create(metadata: ObjectMeta, number: int) -> VmGroup:
    spec = VmGroupSpec(cpu=1, memory=1, replicas=1, template=TEMPLATE)
    return VmGroup(metadata=metadata, spec=spec)


def _is_running(obj: WatchedObject) -> bool:
    status = obj.status
    return (
        status is not None
        and status.phase == "RUNNING"
        and status.observedGeneration == obj.metadata.generation
    )


_WORKLOAD = Workload(VmGroup, _create, _is_running)
