"""The status of a GPUInfo for a given selection, and the names that existing users rely on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright import Done, Key, Terminal, Waiting
from kubewright.crd import build_crds
from support.fake_node_cluster import NOW
from vsphere_operators.kinds.gpuinfo.labels import build_label_key
from vsphere_operators.kinds.gpuinfo.maintenance_windows import Window
from vsphere_operators.kinds.gpuinfo.ranking import Selection
from vsphere_operators.kinds.gpuinfo.rules import (
    NodeFacts,
    Query,
    Requirement,
    SelectionRules,
    VmUsage,
    parse_requirement,
)
from vsphere_operators.kinds.gpuinfo.status import (
    ready_outcome,
    seconds_until_change,
    selection_status_of,
)
from vsphere_operators.kinds.gpuinfo.types import (
    NONE_AVAILABLE,
    Candidate,
    GPUInfo,
    GPUInfoSpec,
    GPUInfoStatus,
    UnmatchedNode,
    UnmatchedNodes,
)
from vsphere_operators.vcenters.node_matching import MatchFailure, MatchFailureCause

SAMPLES = Path(__file__).parents[3] / "config/samples"
RULES = SelectionRules()


def make_facts(name: str, **other: Any) -> NodeFacts:
    fields = {
        "host_name": "esxi-1",
        "vm_name": name,
        "vcenter_name": "vc-1",
        "memory_mb": 8192,
        "usage": VmUsage(87, 327),
        **other,
    }
    return NodeFacts(name=name, **fields)


def make_window(hours: float) -> Window:
    return Window(NOW + timedelta(hours=hours), NOW + timedelta(hours=hours + 4), "Node annotation")


def test_status_has_the_fields_of_the_contract_and_the_candidates() -> None:
    best = make_facts(
        "n1",
        matched_by="name",
        gpus=("vm: vGPU a",),
        next_window=make_window(399.5),
        host_devices=("A100",),
    )
    failure = MatchFailure(MatchFailureCause.VM_NOT_FOUND, "no VM")
    unmatched = [make_facts(f"n{number}", match_failure=failure) for number in (2, 3)]
    selection = Selection(
        query=Query(Requirement(100, True), RULES, NOW),
        selected=best,
        best_suitable=[best],
        suitable_count=1,
        rejection_counts={"GPUMissing": 3},
        unmatched_nodes=unmatched,
        omitted_unmatched_count=1,
    )
    status = selection_status_of(selection, simulated=False)
    assert status == GPUInfoStatus(
        suitableNodeName="n1",
        suitableHostName="esxi-1",
        nodeMemoryUsage=327,
        nodeCPUUsage=87,
        availableAcceleratorTime=399,
        candidates=[
            Candidate(
                node="n1",
                host="esxi-1",
                vm="n1",
                matchedBy="name",
                vcenter="vc-1",
                availableHours=399,
                nextMaintenance=NOW + timedelta(hours=399.5),
                maintenanceSource="Node annotation",
                cpuDemandMHz=87,
                guestMemoryMB=327,
                freeMemoryMB=7865,
                gpus=["vm: vGPU a"],
                hostDevices=["A100"],
            )
        ],
        refused={"GPUMissing": 3},
        unmatched=UnmatchedNodes(
            nodes=[
                UnmatchedNode(node=f"n{number}", reason="VMNotFound", message="no VM")
                for number in (2, 3)
            ],
            more=1,
        ),
    )


def test_none_available_has_zeros_and_the_counts_of_rejections() -> None:
    selection = Selection(
        query=Query(Requirement(100, True), RULES, NOW),
        rejection_counts={"NotReady": 1, "GPUMissing": 2},
    )
    assert selection_status_of(selection, simulated=False) == GPUInfoStatus(
        suitableNodeName=NONE_AVAILABLE,
        suitableHostName=NONE_AVAILABLE,
        nodeMemoryUsage=0,
        nodeCPUUsage=0,
        availableAcceleratorTime=0,
        refused={"NotReady": 1, "GPUMissing": 2},
    )
    spec = GPUInfoSpec(desAccTime=1, gpuRequired=True)
    # Ready is False: a script that waits for Ready must not go on without a node.
    assert ready_outcome(spec, selection, simulated=False) == Waiting(
        "NoneAvailable", "None of 3 nodes matches: 1 NotReady, 2 GPUMissing."
    )


def test_candidates_are_the_selected_node_and_the_best_four_others() -> None:
    nodes = [make_facts(f"n{number}") for number in range(9)]
    candidates = Selection(
        query=Query(Requirement(0, False), RULES, NOW), selected=nodes[6], best_suitable=nodes
    ).candidates
    assert [facts.name for facts in candidates] == ["n6", "n0", "n1", "n2", "n3"]


def test_ready_message_names_invalid_and_missing_spec_fields() -> None:
    with pytest.raises(Terminal, match=r"spec\.desAccTime: Invalid value: -5: must be"):
        parse_requirement(GPUInfoSpec(desAccTime=-5))
    assert parse_requirement(GPUInfoSpec()) == Requirement(0, False)
    selection = Selection(query=Query(Requirement(0, False), RULES, NOW))
    message = ready_outcome(GPUInfoSpec(), selection, simulated=True).message
    assert message.startswith(
        "The cluster has no nodes. spec.desAccTime and spec.gpuRequired are not set; "
        "defaulting to 0 hours and no GPU. Hours and GPUs are simulated"
    )
    for spec, note in (
        (GPUInfoSpec(desAccTime=1), " spec.gpuRequired is not set; defaulting to no GPU."),
        (GPUInfoSpec(gpuRequired=True), " spec.desAccTime is not set; defaulting to 0 hours."),
    ):
        assert ready_outcome(spec, selection, simulated=False).message.endswith(f"nodes.{note}")


@pytest.mark.parametrize(
    ("suitable", "message"),
    [
        (1, 'Selected node "n1": 1 of 4 nodes matches.'),
        (3, 'Selected node "n1": 3 of 4 nodes match.'),
    ],
)
def test_ready_message_names_the_selected_node(suitable: int, message: str) -> None:
    selection = Selection(
        query=Query(Requirement(0, True), RULES, NOW),
        selected=make_facts("n1"),
        suitable_count=suitable,
        rejection_counts={"NotReady": 4 - suitable},
    )
    spec = GPUInfoSpec(desAccTime=0, gpuRequired=True)
    assert ready_outcome(spec, selection, simulated=False) == Done("NodeChosen", message)


def test_ready_message_of_a_cluster_with_one_node() -> None:
    selection = Selection(
        query=Query(Requirement(0, True), RULES, NOW), rejection_counts={"NotReady": 1}
    )
    spec = GPUInfoSpec(desAccTime=0, gpuRequired=True)
    message = ready_outcome(spec, selection, simulated=False).message
    assert message == "The only node does not match: 1 NotReady."


def test_requeue_when_time_changes_the_status() -> None:
    current, other = (
        make_facts("n1", next_window=make_window(2.5)),
        make_facts("n2", next_window=make_window(1.25)),
    )
    one, none = Requirement(1, False), Requirement(0, False)
    assert requeue_after_seconds(
        one, current, other, seconds_until_fewer_suitable=900.0
    ) == pytest.approx(900, abs=0.1)  # n2 falls below 1 h
    assert requeue_after_seconds(one, current) == pytest.approx(1800, abs=0.1)
    assert requeue_after_seconds(one, current, spread=0.5) == pytest.approx(
        1815, abs=0.1
    )  # a refresh may be 30 s late
    assert requeue_after_seconds(Requirement(2, False), current, spread=0.5) == pytest.approx(
        1800.25, abs=0.1
    )  # another selection at most half a second
    assert (
        requeue_after_seconds(none, current, make_facts("n3", next_window=make_window(1.001)))
        == 60.0
    )
    assert requeue_after_seconds(none, make_facts("n4")) is None
    assert requeue_after_seconds(
        one, make_facts("n5", next_window=make_window(8000))
    ) == pytest.approx(1e-3, abs=0.1)
    assert (
        requeue_after_seconds(one, make_facts("n6", next_window=make_window(9000))) == 86400.0
    )  # beyond the horizon; no timer is longer than a day


def requeue_after_seconds(
    requirement: Requirement,
    *nodes: NodeFacts,
    seconds_until_fewer_suitable: float | None = None,
    spread: float = 0.0,
) -> float | None:
    selection = Selection(
        query=Query(requirement, RULES, NOW),
        selected=nodes[0],
        best_suitable=nodes,
        suitable_count=len(nodes),
        seconds_until_fewer_suitable=seconds_until_fewer_suitable,
    )
    return seconds_until_change(selection, interval_seconds=60.0, spread=spread)


def test_label_keys_are_valid_and_unique() -> None:
    assert (
        build_label_key(Key("team-a", "big.job"))
        == "gpuinfo.topology.corinternal.com/team-a.big.job"
    )
    names = [
        build_label_key(Key("n" * 63, "x" * length)).partition("/")[2] for length in (100, 101)
    ]
    assert all(len(name) == 63 for name in names)
    assert names[0] != names[1]


def test_crd_has_the_names_of_the_contract() -> None:
    (crd,) = build_crds([GPUInfo])
    version = crd["spec"]["versions"][0]
    assert (
        crd["spec"]["names"] | {"plural": "gpuinfoes", "shortNames": ["gpu"], "kind": "GPUInfo"}
        == crd["spec"]["names"]
    )
    assert [column["name"] for column in version["additionalPrinterColumns"]][:2] == [
        "Desired Access Time (Hrs)",
        "GPU Required",
    ]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert "required" not in spec
    assert "minimum" not in spec["properties"]["desAccTime"]


def test_samples_are_those_of_the_contract() -> None:
    samples = {}
    for file in sorted(SAMPLES.glob("topology_v1_gpuinfo*.yaml")):
        sample = yaml.safe_load(file.read_text())
        samples[sample["metadata"]["name"]] = (
            sample["spec"]["desAccTime"],
            sample["spec"]["gpuRequired"],
        )
    assert samples == {
        "gpuinfo-sample": (100, True),
        "gpu1": (100, True),
        "gpu2": (250, True),
        "gpu3": (75, True),
        "gpu4": (200, True),
    }
