"""Every decoder, with damaged answers of the simulator: one object may lose values, no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubewright.log import Log
from simulator import SimulatedVCenter
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.decode_errors import DECODE_ERRORS, ReportUndecodable
from vsphere_operators.vsphere.devices import DEVICES_PROPERTY, decode_passthrough_devices
from vsphere_operators.vsphere.disk_decoding import (
    decode_attachments,
    decode_disk,
    decode_ids,
    decode_page,
)
from vsphere_operators.vsphere.faults import Rejected
from vsphere_operators.vsphere.inventory import Inventory
from vsphere_operators.vsphere.inventory_reload import InventoryReload
from vsphere_operators.vsphere.properties import TYPE_MAPPINGS
from vsphere_operators.vsphere.rest import API, RestSession
from vsphere_operators.vsphere.scheduled_tasks import ScheduledTasks
from vsphere_operators.vsphere.service_content import ServiceContent, decode_service_content
from vsphere_operators.vsphere.tags import _read_tags
from vsphere_operators.vsphere.transport import CALL_TIMEOUT_SECONDS, SoapClient
from vsphere_operators.vsphere.updates import (
    ObjectPage,
    UpdateSet,
    decode_object_page,
    decode_results,
    decode_updates,
)
from vsphere_operators.vsphere.vm_calls import (
    VM_CONFIG_PROPERTIES,
    _decode_template_disks,
    decode_vm_config,
)
from vsphere_operators.vsphere.vm_property_cache import VmPropertyCache

from .canned_server import RecordingMetrics
from .conftest import run_in_new_loop, vcsim_path
from .recorded_answers import (
    SIMULATOR_FLAGS,
    UNNOTICEABLE,
    Answers,
    Choices,
    damage_answer,
    damage_json,
    record_answers,
)

FUZZ = settings(
    max_examples=300,
    deadline=None,
    # The answers are the same for all examples.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
Report = tuple[str, str, str]
NUMBERS = st.lists(st.integers(0, 9999), min_size=7, max_size=13)


@pytest.fixture(scope="module")
def answers(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Answers]:
    simulator = SimulatedVCenter(
        vcsim_path(pytestconfig), tmp_path_factory.mktemp("vcsim"), *SIMULATOR_FLAGS
    )
    recorded: list[Answers] = []

    async def record() -> None:
        recorded.append(await record_answers(simulator))

    try:
        run_in_new_loop(simulator.start())
        run_in_new_loop(record())
        yield recorded[0]
    finally:
        run_in_new_loop(simulator.stop())


def make_report(reports: list[Report]) -> ReportUndecodable:
    return lambda type_name, path, ref, error: reports.append((type_name, path, ref))


def make_soap(metrics: RecordingMetrics | None = None) -> SoapClient:
    return SoapClient(Address("vc.invalid"), metrics or RecordingMetrics())


def assert_valid(inventory: Inventory) -> None:
    """Every field has a value of its declared type, and paths can be computed."""
    for ref, item in inventory.objects.items():
        assert msgspec.convert(msgspec.to_builtins(item), type(item)) == item
        inventory.path(ref)
        inventory.location(ref)


def find_with(answers: list[bytes], part: bytes) -> list[bytes]:
    matching = [answer for answer in answers if part in answer]
    assert matching, part
    return matching


# Intact answers are the same for all examples.
@cache
def decode_intact_updates(body: bytes) -> UpdateSet:
    update_set = decode_updates(body)
    assert update_set is not None
    return update_set


@cache
def decode_intact_page(body: bytes) -> ObjectPage:
    return decode_object_page(body)


@FUZZ
@given(NUMBERS)
def test_updates(answers: Answers, numbers: list[int]) -> None:
    choices = Choices(numbers)
    pages = find_with(answers.soap["WaitForUpdatesEx"], b"<objectSet>")
    page = choices.pick(range(len(pages)))
    damaged = damage_answer(choices, pages[page], "objectSet")
    reports = list[Report]()
    intact, decoded = (
        decode_intact_updates(pages[page]),
        decode_updates(damaged.body, make_report(reports)),
    )
    assert decoded is not None
    assert (decoded.version, decoded.truncated) == (intact.version, intact.truncated)
    position, later = damaged.position, len(intact.updates) - damaged.position - 1
    assert decoded.updates[:position] == intact.updates[:position]
    assert decoded.updates[len(decoded.updates) - later :] == intact.updates[position + 1 :]
    old = intact.updates[position]
    if len(decoded.updates) < len(intact.updates):
        assert reports == [("ObjectUpdate", "obj", "")]
    else:
        new = decoded.updates[position]
        lost = set(new.missing) - set(old.missing)
        assert {path for _, path, _ in reports} == lost
        changed = {path for path in old.changes if new.changes.get(path) != old.changes[path]}
        # One element is damaged, so at most one property differs.
        assert len(changed) <= 1
    check_applied(pages, page, damaged.body)


def check_applied(pages: list[bytes], page: int, damaged: bytes) -> None:
    """A load with the damaged page, and the damaged page as an update, leave a valid inventory."""
    reports = list[Report]()
    inventory = Inventory("lab", None, make_report(reports))
    inventory.connect(lambda change: None)
    damaged_set = decode_updates(damaged)
    assert damaged_set is not None
    intact_sets = [decode_intact_updates(body) for body in pages]
    for update_sets in ([*intact_sets[:page], damaged_set, *intact_sets[page + 1 :]], intact_sets):
        reload = InventoryReload(inventory)
        for update_set in update_sets:
            reload.add(update_set.updates)
        reload.commit()
        assert_valid(inventory)
    assert {path for _, path, _ in reports} <= {
        "obj",
        *(path for mapping in TYPE_MAPPINGS.values() for path in mapping.paths),
    }
    assert len(reports) <= 1
    inventory.apply(damaged_set.updates)
    inventory.apply([msgspec.structs.replace(item, kind="modify") for item in damaged_set.updates])
    assert_valid(inventory)


@FUZZ
@given(NUMBERS)
def test_configuration_of_vms(answers: Answers, numbers: list[int]) -> None:
    choices = Choices(numbers)
    [body] = find_with(answers.soap["RetrievePropertiesEx"], b"config.extraConfig")
    damaged = damage_answer(choices, body, "objects")
    intact = {item.ref: decode_vm_config(item.changes) for item in decode_intact_page(body).updates}
    metrics, inventory = RecordingMetrics(), Mock(vms=intact)
    soap = make_soap(metrics)
    cache = VmPropertyCache(
        VM_CONFIG_PROPERTIES, decode_vm_config, soap, Mock(), inventory, Log("vcenter")
    )
    cache.apply(decode_object_page(damaged.body, soap.decode_errors.report).updates)
    differing = [ref for ref, config in cache.values.items() if intact[ref] != config]
    assert len(differing) <= 1
    for ref in cache.values.keys() - cache.unreadable:
        old, new = intact[ref], cache.values[ref]
        if damaged.damage not in UNNOTICEABLE:
            # Never a disk less without a word: a VM may be destroyed only if all are its own.
            assert len(new.first_class_disks) == len(old.first_class_disks)
            assert len(new.disk_files) == len(old.disk_files)
    is_noticeable = damaged.damage not in UNNOTICEABLE and damaged.element != "name"
    assert not cache.unreadable or metrics.undecodable or not is_noticeable


@FUZZ
@given(NUMBERS)
def test_disks_of_templates(answers: Answers, numbers: list[int]) -> None:
    """Never a disk less, or another one, without a word: it would be cloned without its policy."""
    choices = Choices(numbers)
    [body] = find_with(answers.soap["RetrievePropertiesEx"], b"config.extraConfig")
    intact = {
        item.ref: _decode_template_disks(item.changes) for item in decode_intact_page(body).updates
    }
    assert all(intact.values())
    damaged = damage_answer(choices, body, "objects")
    for item in decode_object_page(damaged.body).updates:
        with suppress(*DECODE_ERRORS):
            disks = _decode_template_disks(item.changes)
            assert all(0 < disk.key < 2**31 for disk in disks)
            if damaged.damage not in UNNOTICEABLE and item.ref in intact:
                assert len(disks) == len(intact[item.ref])


@FUZZ
@given(NUMBERS)
def test_devices_of_vms(answers: Answers, numbers: list[int]) -> None:
    choices = Choices(numbers)
    body = choices.pick(find_with(answers.soap["RetrievePropertiesEx"], b"VirtualPCIPassthrough"))
    soap = make_soap()
    intact = {
        item.ref: decode_passthrough_devices(item.changes)
        for item in decode_intact_page(body).updates
    }
    cache = VmPropertyCache(
        [DEVICES_PROPERTY],
        decode_passthrough_devices,
        soap,
        Mock(),
        Mock(vms=intact),
        Log("vcenter"),
    )
    damaged = damage_answer(choices, body, "objects")
    cache.apply(decode_object_page(damaged.body, soap.decode_errors.report).updates)
    assert len([ref for ref in cache.values if intact[ref] != cache.values[ref]]) <= 1
    for devices in cache.values.values():
        for device in devices:
            assert msgspec.convert(msgspec.to_builtins(device), type(device)) == device


@FUZZ
@given(NUMBERS)
def test_scheduled_tasks(answers: Answers, numbers: list[int]) -> None:
    choices = Choices(numbers)
    [body] = find_with(answers.soap["RetrievePropertiesEx"], b"ScheduledTaskInfo")
    soap = make_soap()
    damaged = damage_answer(choices, body, "objects")
    updates = decode_object_page(damaged.body, soap.decode_errors.report).updates
    for entry in ScheduledTasks(soap, Mock(), Mock())._decode_tasks(updates):
        assert msgspec.convert(msgspec.to_builtins(entry), type(entry)) == entry
        assert entry.starts_at.tzinfo is not None


DECODERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "VslmListVStorageObjectForSpec": ("queryResults", decode_page),
    "VslmRetrieveVStorageObject": ("returnval", decode_disk),
    "RetrieveVStorageObject": ("returnval", decode_disk),
    "ListVStorageObject": ("returnval", decode_ids),
    "RetrieveDynamicPassthroughInfo": (
        "returnval",
        lambda body, report: decode_results(body, "RetrieveDynamicPassthroughInfo", report),
    ),
}


@pytest.mark.parametrize("method", DECODERS)
@FUZZ
@given(NUMBERS)
def test_other_methods(answers: Answers, method: str, numbers: list[int]) -> None:
    choices = Choices(numbers)
    container, decode = DECODERS[method]
    body = choices.pick(find_with(answers.soap[method], b"<returnval"))
    damaged = damage_answer(choices, body, container)
    # Of one disk per answer, none may be left.
    with suppress(Rejected):
        decoded = decode(damaged.body, make_report([]))
        if decode is decode_disk:
            assert msgspec.convert(msgspec.to_builtins(decoded), type(decoded)) == decoded


ASSOCIATIONS = b"""<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body>
<VslmRetrieveVStorageObjectAssociationsResponse xmlns="urn:vslm">
<returnval><id xmlns="urn:vim25"><id>1</id></id><vmDiskAssociation><vmId>a</vmId><diskKey>2000
</diskKey></vmDiskAssociation></returnval><returnval><id><id>2</id></id></returnval>
</VslmRetrieveVStorageObjectAssociationsResponse></Body></Envelope>"""


@FUZZ
@given(NUMBERS)
def test_associations(numbers: list[int]) -> None:
    choices = Choices(numbers)
    # The simulator does not have this method.
    damaged = damage_answer(choices, ASSOCIATIONS, "returnval")
    decoded = decode_attachments(damaged.body, make_report([]))
    intact = decode_attachments(ASSOCIATIONS)
    other = "12"[1 - damaged.position]
    assert decoded.get(other) in (intact[other], *intact.values())


@FUZZ
@given(NUMBERS)
def test_service_content(answers: Answers, numbers: list[int]) -> None:
    choices = Choices(numbers)
    body = answers.soap["RetrieveServiceContent"][0]
    damaged = damage_answer(choices, body, "returnval")
    intact = decode_service_content(body, make_report([]))
    content = decode_service_content(damaged.body, make_report([]))
    if content is None:
        assert damaged.element in ("rootFolder", "propertyCollector", "sessionManager")
        return
    names = ServiceContent.__struct_fields__
    differing = [
        name for name in names if str(getattr(content, name)) != str(getattr(intact, name))
    ]
    assert len(differing) <= 1


class DamagedRest(SoapClient):
    """Answers from a recording, one of them damaged."""

    def __init__(self, recorded: dict[str, Any]) -> None:
        super().__init__(Address("vc.invalid"), RecordingMetrics())
        self.recorded = recorded

    async def request_json(
        self,
        verb: str,
        path: str,
        body: object = None,
        headers: Any = None,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    ) -> tuple[int, Any]:
        return 200, self.recorded.get(f"{verb} {path.partition('?')[0]}")


@FUZZ
@given(NUMBERS)
def test_tags(answers: Answers, numbers: list[int]) -> None:
    choices = Choices(numbers)
    recorded = answers.json
    calls = sorted(call for call in recorded if "/tagging/" in call)
    assert len(calls) == 4  # associations, two tags, a category
    call = choices.pick(calls)
    recorded = {**recorded, call: damage_json(choices, recorded[call])}

    async def read() -> dict[str, tuple[str, ...]]:
        soap = DamagedRest(recorded)
        async with RestSession(soap, API, "user", "pass", Log("vcenter")) as rest:
            return await _read_tags(rest, ["host-1"])

    # If the list of attached tags is no list, nothing of it is known.
    with suppress(Rejected):
        tags = asyncio.run(read())
        assert msgspec.convert(msgspec.to_builtins(tags), dict[str, tuple[str, ...]]) == tags
