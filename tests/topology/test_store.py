from __future__ import annotations

import random

import msgspec

from vsphere_operators.topology import model
from vsphere_operators.topology.store import TopologyStore

from .test_streams import MANAGER, make_vm


def apply_event(client: dict[str, str], data: bytes) -> str:
    event = msgspec.json.decode(data.split(b"data: ")[1])
    for vm in event["changed"].get("vms", ()):
        client[vm["id"]] = vm["name"]
    for vm_id in event["removed"].get("vms", ()):
        client.pop(vm_id, None)
    return str(event["revision"])


def test_random_changes_reach_clients_at_any_revision() -> None:
    """Clients that read at random moments end with the same objects as the store."""
    numbers = random.Random(18)
    store = TopologyStore("e", lambda: MANAGER, max_removed_ids=20, max_event_bytes=500)
    clients: list[tuple[dict[str, str], int]] = [({}, 0) for _ in range(5)]
    resets = 0

    def read(index: int) -> None:
        nonlocal resets
        objects, number = clients[index]
        if store.parse_revision(f"e-{number}") is None:
            resets += 1
            snapshot = msgspec.json.decode(store.encode_snapshot())
            objects = {vm["id"]: vm["name"] for vm in snapshot["vms"]}
            number = int(snapshot["revision"].rpartition("-")[2])
        if number < store.number:
            event = store.encode_changes(number)
            assert apply_event(objects, event.data) == f"e-{event.number}"
            number = event.number
        clients[index] = (objects, number)

    for _ in range(3000):
        vm = numbers.randrange(60)
        if numbers.random() < 0.4:
            store.remove("vms", f"vc/vm-{vm}")
        else:
            store.put(make_vm(vm, f"name-{numbers.randrange(3)}"))
        if numbers.random() < 0.3:
            read(numbers.randrange(5))
    for index in range(5):
        while clients[index][1] < store.number:
            read(index)
        assert clients[index][0] == {vm.id: vm.name for vm in store.items(model.VM).values()}
    assert resets > 0


def test_equal_object_is_not_a_change() -> None:
    store = TopologyStore("e", lambda: MANAGER)
    store.put(make_vm(1))
    body = store.encode_snapshot()
    store.put(make_vm(1))
    assert store.revision == "e-1"
    assert store.encode_snapshot() is body


def test_events_for_many_revisions_are_not_all_kept() -> None:
    store = TopologyStore("e", lambda: MANAGER)
    for number in range(50):
        store.put(make_vm(number))
    events = [store.encode_changes(number) for number in range(50)]
    assert store.encode_changes(49) is events[49]
    assert store.encode_changes(0) is not events[0]


def test_vms_above_the_limit_are_counted() -> None:
    store = TopologyStore("e", lambda: MANAGER, max_vms=2)
    for number in range(4):
        store.put(make_vm(number))
    store.put(msgspec.structs.replace(make_vm(9), node="node-9"))
    snapshot = msgspec.json.decode(store.encode_snapshot())
    # A VM of a Node is never omitted.
    assert [vm["id"] for vm in snapshot["vms"]] == ["vc/vm-0", "vc/vm-1", "vc/vm-9"]
    assert snapshot["limits"] == {"vms": 2, "omittedVMs": 2}
    store.remove("vms", "vc/vm-3")
    assert store.omitted_vms == {"vc/vm-2"}


def test_number_of_omitted_vms_reaches_clients() -> None:
    store = TopologyStore("e", lambda: MANAGER, max_vms=1)
    notified = list[int]()
    store.connect(lambda: notified.append(store.number))

    def read_limits(number: int) -> object:
        event = store.encode_changes(number).data.decode()
        changes = msgspec.json.decode(event.partition("data: ")[2])
        assert changes["changed"] == {}
        return changes["limits"]

    store.put(make_vm(0))
    store.publish()
    for omitted in (1, 2):
        number, etag = store.number, store.revision
        store.put(make_vm(omitted))
        # A change of a VM that is not shown changes nothing.
        store.put(make_vm(omitted, "renamed"))
        store.publish()
        assert read_limits(number) == {"vms": 1, "omittedVMs": omitted}
        assert store.revision != etag
    number = store.number
    store.remove("vms", "vc/vm-2")
    store.publish()
    assert read_limits(number) == {"vms": 1, "omittedVMs": 1}
    assert notified == [1, 2, 3, 4]
    # Shown as soon as it is the VM of a Node.
    store.put(msgspec.structs.replace(make_vm(1), node="node-1"))
    assert store.limits.omittedVMs == 0


def test_new_leader_changes_the_etag() -> None:
    leading = [False]
    store = TopologyStore("e", lambda: msgspec.structs.replace(MANAGER, isLeader=leading[0]))
    store.encode_snapshot()
    before = store.revision
    leading[0] = True
    assert msgspec.json.decode(store.encode_snapshot())["manager"]["isLeader"] is True
    assert store.revision != before
