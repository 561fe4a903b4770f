"""All answers that a simulated vCenter gives to one reading of everything, and ways to damage them.

A damaged answer differs in one element of one object, as that of a newer vCenter might.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from lxml import etree

from kubewright.log import Log
from simulator import SimulatedVCenter
from vsphere_operators.vsphere.disk_catalog import RefreshScope
from vsphere_operators.vsphere.faults import XSI_TYPE
from vsphere_operators.vsphere.transport import CALL_TIMEOUT_SECONDS, SoapClient
from vsphere_operators.vsphere.vcenter import VCenter

from .canned_server import RecordingMetrics, simulator_address, simulator_credentials

Option = TypeVar("Option")

SIMULATOR_FLAGS = (
    "--clusters=1",
    "--hosts=2",
    "--vms=3",
    "--datastores=2",
    "--fcd=pvc-a",
    "--fcd=pvc-b",
    "--gpu-host=DC0_C0_H0=direct",
    "--gpu-vm=DC0_C0_RP0_VM0=dynamic",
    "--gpu-vm=DC0_C0_RP0_VM1=vgpu",
)


@dataclass
class Answers:
    # By the name of the method on the wire.
    soap: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list), repr=False)
    # By verb and path, without the parameters.
    json: dict[str, Any] = field(default_factory=dict, repr=False)


def make_recording_client(answers: Answers) -> type[SoapClient]:
    class RecordingSoap(SoapClient):
        async def post(self, body: bytes, *, method: str, **options: Any) -> bytes:
            answer = await super().post(body, method=method, **options)
            answers.soap[method].append(answer)
            return answer

        async def request_json(
            self,
            verb: str,
            path: str,
            body: object = None,
            headers: Mapping[str, str] | None = None,
            timeout_seconds: float = CALL_TIMEOUT_SECONDS,
        ) -> tuple[int, Any]:
            status, answer = await super().request_json(verb, path, body, headers, timeout_seconds)
            answers.json[f"{verb} {path.partition('?')[0]}"] = answer
            return status, answer

    return RecordingSoap


async def record_answers(simulator: SimulatedVCenter) -> Answers:
    """Everything that the product reads, once."""
    answers = Answers()
    for tag in ("a", "b"):
        await simulator.set_tag("DC0_C0_H0", "zone", tag)
    await simulator.set_attribute("DC0_C0_H0", "owner", "team-1")
    await simulator.attach_disk("pvc-a", "DC0_C0_RP0_VM0")
    await simulator.schedule_maintenance("DC0_C0_H0", datetime.now(UTC) + timedelta(days=1))
    vcenter = VCenter(
        "vc",
        simulator_address(simulator),
        simulator_credentials(simulator),
        Log("vcenter"),
        RecordingMetrics(),
        build_soap=make_recording_client(answers),
    )
    try:
        await read_everything(vcenter)
    finally:
        await vcenter.session.logout()
        await vcenter.soap.close()
    return answers


async def read_everything(vcenter: VCenter) -> None:
    loaded = asyncio.Event()
    vcenter.inventory_loaded.connect(loaded.set)
    await vcenter.session.login()
    watcher = asyncio.create_task(vcenter.inventory_watcher.run())
    try:
        await asyncio.wait_for(loaded.wait(), 30)
        for part in (vcenter.vm_configs, vcenter.passthrough_devices):
            await part.refresh(list(vcenter.inventory.vms))
        for host in vcenter.inventory.hosts:
            vcenter.assignable_hardware.get(host)
        await vcenter.assignable_hardware.poll()
        await vcenter.scheduled_tasks.poll()
        await vcenter.tags.poll()
        for catalog in (vcenter.disks.global_catalog, vcenter.disks.datastore_catalog):
            await catalog.list_disks({}, RefreshScope.ALL)
    finally:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)


WEIRD_TEXTS = [
    "",
    " ",
    "-1",
    "true",
    "1e9",
    "NaN",
    "soon",
    "entangled",
    "host-1",
    "%2f%zz",
    "9" * 30,
    # Python refuses to convert it.
    "9" * 5000,
    "0000-00-00T00:00:00Z",
    "2026-01-01T00:00:00",
    "9999-12-31T23:59:59+99:00",
    "\u221e\u202e",
]
WEIRD_TYPES = [
    "NewType",
    "xsd:int",
    "xsd:string",
    "xsd:boolean",
    "xsd:dateTime",
    "xsd:novelty",
    "ArrayOfString",
    "ArrayOfNewType",
    "ArrayOfVirtualDevice",
    "ManagedObjectReference",
]
_NEW_TAG = "{urn:vim25}novelty"


class Choices:
    """Decisions that a list of numbers makes, so that Hypothesis can vary and reduce them."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = itertools.cycle(numbers)

    def pick(self, options: Sequence[Option]) -> Option:
        return options[next(self._numbers) % len(options)]


Damage = Callable[[etree._Element, Choices], None]


def set_text(element: etree._Element, choices: Choices) -> None:
    for child in list(element):
        element.remove(child)
    element.text = choices.pick(WEIRD_TEXTS)


def set_type(element: etree._Element, choices: Choices) -> None:
    element.set(XSI_TYPE, choices.pick(WEIRD_TYPES))


def remove_attributes(element: etree._Element, choices: Choices) -> None:
    element.attrib.clear()


def set_reference_type(element: etree._Element, choices: Choices) -> None:
    element.set("type", choices.pick(["", "HostSystem", "Datastore", "NewType"]))


def remove(element: etree._Element, choices: Choices) -> None:
    parent = element.getparent()
    assert parent is not None
    parent.remove(element)


def duplicate(element: etree._Element, choices: Choices) -> None:
    element.addnext(copy.deepcopy(element))


def add_child(element: etree._Element, choices: Choices) -> None:
    child = etree.SubElement(element, _NEW_TAG)
    for _ in range(choices.pick([0, 1, 100])):
        child = etree.SubElement(child, _NEW_TAG)
    child.text = choices.pick(WEIRD_TEXTS)


# What these leave out cannot be noticed.
UNNOTICEABLE: tuple[Damage, ...] = (remove, duplicate, set_type, remove_attributes)
DAMAGES: tuple[Damage, ...] = (set_text, set_reference_type, add_child, *UNNOTICEABLE)


@dataclass(frozen=True)
class DamagedAnswer:
    body: bytes
    # The number of the object, row or result with the damage.
    position: int
    damage: Damage
    element: str


def damage_answer(choices: Choices, body: bytes, container: str) -> DamagedAnswer:
    """Change one element inside one of the containers, elements of that name."""
    root = etree.fromstring(body)
    containers = list(root.iter(f"{{*}}{container}"))
    position = choices.pick(range(len(containers)))
    elements = list(containers[position].iterdescendants())
    element = choices.pick(elements or [containers[position]])
    damage = choices.pick(DAMAGES if elements else (set_text, add_child))
    name = str(etree.QName(element).localname)
    damage(element, choices)
    return DamagedAnswer(etree.tostring(root), position, damage, name)


def damage_json(choices: Choices, value: Any) -> Any:
    """Replace, remove or add one value inside a JSON value."""
    if isinstance(value, dict) and value and choices.pick((True, False)):
        key = choices.pick(sorted(value))
        if choices.pick((True, False)):
            return {other: item for other, item in value.items() if other != key}
        return {**value, key: damage_json(choices, value[key])}
    if isinstance(value, list) and value and choices.pick((True, False)):
        index = choices.pick(range(len(value)))
        return [*value[:index], damage_json(choices, value[index]), *value[index + 1 :]]
    return choices.pick([None, "", 7, True, "x", [], [None], {}, {"x": 1}, [[]]])
