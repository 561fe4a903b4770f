from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from kubewright import Resource, Spec, Status, kind
from kubewright.condition import Condition
from kubewright.shared_parts import PartSharer


class MachineSpec(Spec):
    name: str = ""


class MachineStatus(Status):
    cluster: str | None = None
    address: str | None = None
    stores: list[str] | None = None


@kind("test.example/v1")
class Machine(Resource[MachineSpec, MachineStatus]):
    """A machine."""


def make_machine(number: int) -> Machine:
    """As it is decoded: all its texts are new."""
    raw = {
        "metadata": {
            "name": f"m-{number}",
            "namespace": "team",
            "resourceVersion": str(number + 1),
        },
        "spec": {"name": f"vm-{number}"},
        "status": {
            "cluster": f"cluster-{number % 10}",
            "address": f"10.0.0.{number}",
            "stores": ["fast"],
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Reconciled",
                    "lastTransitionTime": datetime(2026, 1, 1, tzinfo=UTC).isoformat(),
                }
            ],
        },
    }
    return Machine.decode(msgspec.json.encode(raw))


def test_equal_parts_are_the_same_object_and_nothing_changes() -> None:
    sharer = PartSharer()
    expected = [make_machine(number) for number in range(20)]
    first, *_, other = machines = [sharer.share(make_machine(number)) for number in range(11)]
    assert machines == expected[:11]
    assert [machine.encode() for machine in machines] == [
        machine.encode() for machine in expected[:11]
    ]
    assert first.status.cluster is other.status.cluster
    assert first.metadata.namespace is other.metadata.namespace
    # What can be changed is not shared.
    assert first.metadata.labels is not other.metadata.labels
    assert first.status.conditions[0] is other.status.conditions[0]
    assert first.status.stores is not None
    assert other.status.stores is not None
    assert first.status.stores[0] is other.status.stores[0]
    assert first.status.stores is not other.status.stores


def test_texts_that_differ_in_each_object_are_not_remembered() -> None:
    sharer = PartSharer()
    for number in range(1_500):
        sharer.share(make_machine(number))
    pools = sharer._pools[MachineStatus]
    assert "address" not in pools
    assert set(pools["cluster"]._texts) == {f"cluster-{number}" for number in range(10)}
    assert sharer._pools[MachineSpec] == {}


def test_conditions_are_forgotten_when_there_are_many() -> None:
    sharer = PartSharer()
    for number in range(3_000):
        condition = Condition(type="Ready", status="True", message=str(number))
        sharer.share(Machine(status=MachineStatus(conditions=[condition])))
    assert len(sharer._conditions) <= 2_000
