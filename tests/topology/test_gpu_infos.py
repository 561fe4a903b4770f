from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kubewright import ObjectMeta
from kubewright.builtin import Node, NodeSpec, Taint
from vsphere_operators.kinds.gpuinfo import GPUInfo
from vsphere_operators.kinds.gpuinfo.rules import (
    NodeFacts,
    Query,
    Rejection,
    Requirement,
    SelectionRules,
)
from vsphere_operators.kinds.gpuinfo.types import GPUInfoSpec
from vsphere_operators.topology.entities import build_gpu_info

QUERY = Query(Requirement(0, True), SelectionRules(), datetime(2026, 11, 18, tzinfo=UTC))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (NodeSpec(unschedulable=True), "it is cordoned"),
        (
            NodeSpec(
                unschedulable=True,
                taints=[Taint(key="node-role.kubernetes.io/control-plane", effect="NoSchedule")],
            ),
            "it is cordoned, and it is a control plane node",
        ),
        # The facts are older than the Node.
        (NodeSpec(), "cordoned, part of the control plane, or tainted by Kubernetes"),
    ],
)
def test_rejection_names_why_a_node_takes_no_pods(spec: NodeSpec, message: str) -> None:
    info = GPUInfo(metadata=ObjectMeta(name="train", namespace="default"), spec=GPUInfoSpec())
    facts = {"node-1": NodeFacts(name="node-1", rejection_for_all=Rejection.UNSCHEDULABLE)}
    node = Node(metadata=ObjectMeta(name="node-1"), spec=spec)
    item = build_gpu_info(info, facts, QUERY, {"node-1": node}.get)
    assert [(row.reason, row.message) for row in item.rejections] == [("Unschedulable", message)]
