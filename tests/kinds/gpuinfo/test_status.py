"""The answer as plain calls, and the names that people rely on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright import Key, Terminal
from kubewright.crd import build_crds
from support.fake_node_cluster import NOW
from vsphere_operators.kinds.gpuinfo.controller import (
    NONE_AVAILABLE,
    Candidate,
    GPUInfo,
    GPUInfoSpec,
    GPUInfoStatus,
    Selection,
    UnmatchedNode,
    UnmatchedNodes,
    parse_requirement,
    ready_reason,
    status_of,
)
from vsphere_operators.kinds.gpuinfo.labels import build_label_key
from vsphere_operators.kinds.gpuinfo.maintenance import Window
from vsphere_operators.kinds.gpuinfo.rules import (
    Load,
    NodeFacts,
    Rejection,
    Requirement,
    SelectionRules,
)
from vsphere_operators.kinds.gpuinfo.rules import MatchFailure as Why

SAMPLES = Path(__file__).parents[3] / "config/samples"
RULES = SelectionRules()


def make_facts(name: str, **other: Any) -> NodeFacts:
    given = {
        "host_name": "esxi-1",
        "vm_name": name,
        "vcenter_name": "vc-1",
        "memory_mb": 8192,
        "load": Load(87, 327),
        **other,
    }
    return NodeFacts(name=name, **given)


def make_window(hours: float) -> Window:
    return Window(NOW + timedelta(hours=hours), NOW + timedelta(hours=hours + 4), "Node annotation")


def test_the_answer_in_the_contracts_words_with_the_facts_beside_it() -> None:
    best = make_facts(
        "n1",
        matched_by="name",
        gpus=("vm: vGPU a",),
        maintenance=make_window(399.5),
        host_devices=("A100",),
    )
    lost = [
        make_facts(f"n{number}", match_failure=Why(Rejection.VM_NOT_FOUND, "no VM"))
        for number in (2, 3)
    ]
    answer = Selection(
        requirement=Requirement(100, True),
        chosen=best,
        best_nodes=[best],
        suitable_count=1,
        rejection_counts={"GPUMissing": 3},
        unmatched_nodes=lost,
        omitted_unmatched_count=1,
    )
    status = status_of(answer, RULES, NOW, simulated=False)
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


def test_none_available_has_zeros_and_the_counts() -> None:
    answer = Selection(
        requirement=Requirement(100, True), rejection_counts={"NotReady": 1, "GPUMissing": 2}
    )
    assert status_of(answer, RULES, NOW, simulated=False) == GPUInfoStatus(
        suitableNodeName=NONE_AVAILABLE,
        suitableHostName=NONE_AVAILABLE,
        nodeMemoryUsage=0,
        nodeCPUUsage=0,
        availableAcceleratorTime=0,
        refused={"NotReady": 1, "GPUMissing": 2},
    )
    assert ready_reason(GPUInfoSpec(desAccTime=1, gpuRequired=True), answer, simulated=False) == (
        "NoneAvailable",
        "none of 3 nodes suits: 1 NotReady, 2 GPUMissing.",
    )


def test_the_chosen_one_comes_first_and_only_a_few_follow() -> None:
    nodes = [make_facts(f"n{number}") for number in range(9)]
    shown = Selection(
        requirement=Requirement(0, False), chosen=nodes[6], best_nodes=nodes
    ).candidates
    assert [each.name for each in shown] == ["n6", "n0", "n1", "n2", "n3"]


def test_bad_and_missing_specs_are_said_in_words() -> None:
    with pytest.raises(Terminal, match=r"spec\.desAccTime is -5; set it to the hours"):
        parse_requirement(GPUInfoSpec(desAccTime=-5))
    assert parse_requirement(GPUInfoSpec()) == Requirement(0, False)
    _, words = ready_reason(
        GPUInfoSpec(), Selection(requirement=Requirement(0, False)), simulated=True
    )
    assert "the cluster has no nodes" in words
    assert "spec.desAccTime and spec.gpuRequired is not set" in words
    assert "simulated" in words


def test_the_timer_is_at_the_moment_when_something_changes() -> None:
    held, other = (
        make_facts("n1", maintenance=make_window(2.5)),
        make_facts("n2", maintenance=make_window(1.25)),
    )
    one, none = Requirement(1, False), Requirement(0, False)
    assert requeue_after_seconds(
        one, held, other, seconds_until_fewer_suitable=900.0
    ) == pytest.approx(900, abs=0.1)  # n2 falls below 1 h
    assert requeue_after_seconds(one, held) == pytest.approx(1800, abs=0.1)
    assert requeue_after_seconds(one, held, spread=0.5) == pytest.approx(
        1815, abs=0.1
    )  # what is only shown may be 30 s late
    assert requeue_after_seconds(Requirement(2, False), held, spread=0.5) == pytest.approx(
        1800.25, abs=0.1
    )  # where the answer moves, half a second
    assert (
        requeue_after_seconds(none, held, make_facts("n3", maintenance=make_window(1.001))) == 60.0
    )
    assert requeue_after_seconds(none, make_facts("n4")) is None
    assert requeue_after_seconds(
        one, make_facts("n5", maintenance=make_window(8000))
    ) == pytest.approx(1e-3, abs=0.1)
    assert (
        requeue_after_seconds(one, make_facts("n6", maintenance=make_window(9000))) == 86400.0
    )  # it counts for 8760 h, and no timer is longer than a day


def requeue_after_seconds(
    question: Requirement,
    *nodes: NodeFacts,
    seconds_until_fewer_suitable: float | None = None,
    spread: float = 0.0,
) -> float | None:
    answer = Selection(
        requirement=question,
        chosen=nodes[0],
        best_nodes=nodes,
        suitable_count=len(nodes),
        seconds_until_fewer_suitable=seconds_until_fewer_suitable,
    )
    return answer.requeue_after_seconds(RULES, NOW, 60.0, spread)


def test_labels_are_legal_and_never_the_same() -> None:
    assert (
        build_label_key(Key("team-a", "big.job"))
        == "gpuinfo.topology.corinternal.com/team-a.big.job"
    )
    long = [build_label_key(Key("n" * 63, "x" * length)).partition("/")[2] for length in (100, 101)]
    assert all(len(name) == 63 for name in long)
    assert long[0] != long[1]


def test_the_crd_has_the_names_that_people_rely_on() -> None:
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


def test_the_samples_are_the_contracts() -> None:
    found = {}
    for file in sorted(SAMPLES.glob("topology_v1_gpuinfo*.yaml")):
        sample = yaml.safe_load(file.read_text())
        found[sample["metadata"]["name"]] = (
            sample["spec"]["desAccTime"],
            sample["spec"]["gpuRequired"],
        )
    assert found == {
        "gpuinfo-sample": (100, True),
        "gpu1": (100, True),
        "gpu2": (250, True),
        "gpu3": (75, True),
        "gpu4": (200, True),
    }
