"""GPUInfo over generated clusters: what the real cache, inventories, matching, facts and ranking answer, against brute force."""

from __future__ import annotations

import asyncio
from collections import Counter
from unittest.mock import Mock

from hypothesis import HealthCheck, given, settings

from support.cluster_cases import NOW, ClusterCase, LoadedCluster, cluster_cases
from support.fake_node_cluster import GPU_RESOURCES
from support.gpuinfo_brute_force import HORIZON_HOURS, compute_expected
from vsphere_operators.kinds.gpuinfo.controller import (
    MAX_CANDIDATES,
    MAX_UNMATCHED,
    NONE_AVAILABLE,
    GPUInfoController,
    status_of,
)
from vsphere_operators.kinds.gpuinfo.rules import Rejection, Requirement, SelectionRules

RULES = SelectionRules(horizon_hours=HORIZON_HOURS, margin_fraction=0.1, margin_mhz=100)
SEEN_REJECTIONS: Counter[str] = Counter()


async def check_answer(cluster: ClusterCase) -> None:
    fed = LoadedCluster(cluster, GPU_RESOURCES)
    controller = GPUInfoController(
        fed.tracker,
        fed.vcenters,
        fed.cache,
        RULES,
        Mock(),
        interval_seconds=60.0,
        change_fraction=0.05,
    )
    answer = controller.select_node(
        Requirement(cluster.required_hours, cluster.gpu_required), cluster.current_node, NOW
    )
    status, right = status_of(answer, RULES, NOW, simulated=False), compute_expected(cluster)
    assert status.suitableNodeName == (right.node or NONE_AVAILABLE)
    assert status.suitableHostName == (right.host or NONE_AVAILABLE)
    assert (status.availableAcceleratorTime, status.nodeCPUUsage, status.nodeMemoryUsage) == (
        right.hours,
        right.cpu_demand_mhz,
        right.guest_memory_mb,
    )
    assert (status.refused or {}) == dict(right.rejection_counts)
    assert answer.suitable_count == len(right.suitable_nodes)
    shown = (
        [right.node, *(name for name in right.suitable_nodes if name != right.node)][
            :MAX_CANDIDATES
        ]
        if right.node
        else []
    )
    assert [each.node for each in status.candidates or ()] == shown
    unmatched = status.unmatched.nodes if status.unmatched else []
    assert [(each.node, each.reason) for each in unmatched] == sorted(right.unmatched.items())[
        :MAX_UNMATCHED
    ]
    assert (status.unmatched.more if status.unmatched else 0) == max(
        len(right.unmatched) - MAX_UNMATCHED, 0
    )
    SEEN_REJECTIONS.update(right.rejection_counts.keys() or ["nobody"])
    SEEN_REJECTIONS["chosen"] += bool(right.node)


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cluster_cases())
def check_generated_clusters(cluster: ClusterCase) -> None:
    asyncio.run(check_answer(cluster))


def test_500_generated_clusters_are_answered_as_brute_force_does_and_every_refusal_occurs() -> None:
    SEEN_REJECTIONS.clear()
    check_generated_clusters()
    # FactsUnreadable is a fault of ours: no cluster leads to it.
    assert {reason.value for reason in Rejection} - {"FactsUnreadable"} <= set(SEEN_REJECTIONS)
    assert SEEN_REJECTIONS["chosen"] > 50
