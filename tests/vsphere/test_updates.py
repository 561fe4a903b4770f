"""Decoding of property collector responses."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vsphere_operators.vsphere.faults import Unreachable
from vsphere_operators.vsphere.model import Host
from vsphere_operators.vsphere.properties import (
    HOST_MAPPING,
    TASK_MAPPING,
    VIRTUAL_MACHINE_MAPPING,
    find_properties_to_reread,
)
from vsphere_operators.vsphere.updates import (
    ObjectUpdate,
    Ref,
    UpdateSet,
    decode_object_page,
    decode_updates,
)

ENVELOPE = (
    '<?xml version="1.0" encoding="UTF-8"?>'
    '<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" '
    'xmlns:xsd="http://www.w3.org/2001/XMLSchema" '
    'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body>{}</soapenv:Body>'
    "</soapenv:Envelope>"
)


def soap_response(inside: str, method: str = "WaitForUpdatesEx") -> bytes:
    return ENVELOPE.format(
        f'<{method}Response xmlns="urn:vim25">{inside}</{method}Response>'
    ).encode()


def update_response(objects: str, more: str = "") -> bytes:
    filters = f'<filterSet><filter type="PropertyFilter">f</filter>{objects}</filterSet>'
    return soap_response(f"<returnval><version>7</version>{filters}{more}</returnval>")


def change_xml(name: str, value: str, op: str = "assign") -> str:
    return f"<changeSet><name>{name}</name><op>{op}</op>{value}</changeSet>"


def enter_response(kind: str, value: str) -> bytes:
    given = change_xml("p", f'<val xsi:type="{kind}">{value}</val>')
    return update_response(
        f'<objectSet><kind>enter</kind><obj type="Folder">f</obj>{given}</objectSet>'
    )


def decode_update(
    *changes: str, type_name: str = "VirtualMachine", kind: str = "modify", more: str = ""
) -> ObjectUpdate:
    body = update_response(
        f"<objectSet><kind>{kind}</kind>"
        f'<obj type="{type_name}">x-1</obj>{"".join(changes)}{more}</objectSet>'
    )
    decoded = decode_updates(body)
    assert decoded is not None
    assert len(decoded.updates) == 1
    return decoded.updates[0]


def decode_value(xml: str) -> object:
    return decode_update(change_xml("p", xml)).changes["p"]


def test_response_without_updates_gives_none() -> None:
    assert decode_updates(soap_response("")) is None


def test_version_kinds_and_truncation() -> None:
    objects = "".join(
        f'<objectSet><kind>{kind}</kind><obj type="Folder">{kind}-1</obj></objectSet>'
        for kind in ("enter", "modify", "leave")
    )
    assert decode_updates(update_response(objects, "<truncated>true</truncated>")) == UpdateSet(
        "7",
        True,
        [
            ObjectUpdate("enter", "Folder", "enter-1"),
            ObjectUpdate("modify", "Folder", "modify-1"),
            ObjectUpdate("leave", "Folder", "leave-1"),
        ],
    )
    assert decode_updates(update_response("", "<truncated>false</truncated>")) == UpdateSet(
        "7", False, []
    )
    assert decode_updates(update_response("")) == UpdateSet("7", False, [])


@pytest.mark.parametrize(
    ("xml", "value"),
    [
        ('<val xsi:type="xsd:string">DC0 &amp; more</val>', "DC0 & more"),
        ('<val xsi:type="xsd:string"/>', ""),
        ('<val xsi:type="xsd:boolean">true</val>', True),
        ('<val xsi:type="xsd:boolean">0</val>', False),
        ('<val xsi:type="xsd:int">-12</val>', -12),
        ('<val xsi:type="xsd:long">4398046511104</val>', 4398046511104),
        ('<val xsi:type="xsd:double">0.5</val>', 0.5),
        (
            '<val xsi:type="xsd:dateTime">2026-11-16T00:38:01.410184553Z</val>',
            datetime(2026, 11, 16, 0, 38, 1, 410184, UTC),
        ),
        ('<val xsi:type="HostSystemConnectionState">notResponding</val>', "notResponding"),
        (
            '<val xsi:type="ManagedObjectReference" type="HostSystem">host-15</val>',
            Ref("HostSystem", "host-15"),
        ),
        (
            '<val type="HostSystem" xsi:type="ManagedObjectReference">host-15</val>',
            Ref("HostSystem", "host-15"),
        ),
        ('<val xsi:type="ArrayOfManagedObjectReference"/>', ()),
        (
            '<val xsi:type="ArrayOfManagedObjectReference">'
            '<ManagedObjectReference type="Datastore" xsi:type="ManagedObjectReference">d-1'
            "</ManagedObjectReference><ManagedObjectReference "
            'type="Datastore">d-2</ManagedObjectReference></val>',
            (Ref("Datastore", "d-1"), Ref("Datastore", "d-2")),
        ),
        ('<val xsi:type="ArrayOfString"><string>a</string><string/></val>', ("a", "")),
        (
            '<val xsi:type="ArrayOfCustomFieldValue">'
            '<CustomFieldValue xsi:type="CustomFieldStringValue"><key>101</key><value>me</value>'
            "</CustomFieldValue></val>",
            ({"@type": "CustomFieldStringValue", "key": "101", "value": "me"},),
        ),
        (
            '<val xsi:type="GuestNicInfo"><ip>a</ip><ip>b</ip><ip>c</ip></val>',
            {"@type": "GuestNicInfo", "ip": ("a", "b", "c")},
        ),
        ('<val xsi:type="NotAuthenticated"/>', {"@type": "NotAuthenticated"}),
    ],
)
def test_values_of_each_type(xml: str, value: object) -> None:
    decoded = decode_value(xml)
    assert decoded == value
    assert type(decoded) is type(value)


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_any_text_is_decoded(text: str) -> None:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert decode_value(f'<val xsi:type="xsd:string">{escaped}</val>') == text


def test_unset_property_gives_none() -> None:
    update = decode_update(
        change_xml("a", ""),
        change_xml("b", "", "remove"),
        change_xml("c", "", "indirectRemove"),
        change_xml("d", '<val xsi:type="xsd:int">1</val>', "add"),
    )
    assert update.changes == {"a": None, "b": None, "c": None, "d": 1}


def test_unavailable_property_is_missing() -> None:
    fault = (
        '<fault><fault xsi:type="NoPermission"><object type="HostSystem">x-1</object></fault>'
        "</fault>"
    )
    update = decode_update(
        type_name="HostSystem",
        more=f"<missingSet><path>summary.hardware.vendor</path>{fault}</missingSet>",
    )
    assert update.missing == ("summary.hardware.vendor",)
    updated = HOST_MAPPING.apply_update(
        HOST_MAPPING.create_empty(update),
        decode_update(
            change_xml("summary.hardware.vendor", '<val xsi:type="xsd:string">Dell</val>'),
            type_name="HostSystem",
        ),
    )
    assert HOST_MAPPING.apply_update(updated, update) == HOST_MAPPING.create_empty(update)


def test_part_of_a_list_property_is_read_again() -> None:
    update = decode_update(
        change_xml(
            'guest.net["4000"].ipAddress',
            '<val xsi:type="ArrayOfString"><string>10.0.0.1</string></val>',
        ),
        change_xml("customValue[101]", "", "remove"),
        change_xml("config.uuid", '<val xsi:type="xsd:string">u</val>'),
    )
    assert update.changes == {"config.uuid": "u"}
    assert find_properties_to_reread([update]) == {
        ("VirtualMachine", "x-1"): {"guest.net", "customValue"}
    }


def test_field_inside_a_property_is_read_again() -> None:
    update = decode_update(
        change_xml("info.error.localizedMessage", '<val xsi:type="xsd:string">no</val>'),
        type_name="Task",
    )
    assert find_properties_to_reread([update]) == {("Task", "x-1"): {"info.error"}}
    assert TASK_MAPPING.apply_update(
        TASK_MAPPING.create_empty(update), update
    ) == TASK_MAPPING.create_empty(update)


def test_complete_or_unrequested_properties_are_not_read_again() -> None:
    number = '<val xsi:type="xsd:int">1</val>'
    quick = decode_update(
        change_xml("summary.quickStats.overallCpuUsage", number),
        change_xml("overallStatus", '<val xsi:type="Color">red</val>'),
    )
    assert (
        find_properties_to_reread(
            [quick, decode_update(change_xml("x[1]", number), type_name="Network")]
        )
        == {}
    )


def test_unset_property_restores_the_default() -> None:
    blank = VIRTUAL_MACHINE_MAPPING.create_empty(decode_update())
    values = [
        change_xml(path, '<val xsi:type="xsd:string">1</val>')
        for path in VIRTUAL_MACHINE_MAPPING.paths
    ]
    updated = VIRTUAL_MACHINE_MAPPING.apply_update(blank, decode_update(*values))
    assert updated != blank
    assert (
        VIRTUAL_MACHINE_MAPPING.apply_update(
            updated,
            decode_update(*[change_xml(path, "") for path in VIRTUAL_MACHINE_MAPPING.paths]),
        )
        == blank
    )


def test_decode_object_page() -> None:
    objects = (
        '<returnval><token>t</token><objects><obj type="VirtualMachine">vm-1</obj><propSet>'
        "<name>name</name>"
        '<val xsi:type="xsd:string">a</val></propSet><missingSet><path>config.uuid</path><fault/>'
        "</missingSet></objects></returnval>"
    )
    decoded = decode_object_page(soap_response(objects, "RetrievePropertiesEx"))
    assert decoded.token == "t"
    assert decoded.updates == [
        ObjectUpdate("modify", "VirtualMachine", "vm-1", {"name": "a"}, ("config.uuid",))
    ]
    assert decode_object_page(soap_response("", "RetrievePropertiesEx")).updates == []


ENTITY_BOMB = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><body>Bad gateway</body></html>",
        b"<html><p>Bad gateway",
        b"\xff\xfe\x00",
        soap_response("<returnval/>"),
        soap_response("<returnval><version/></returnval>"),
        soap_response("")
        .replace(b"<soapenv:Envelope", ENTITY_BOMB.encode() + b"<soapenv:Envelope")
        .replace(b"<soapenv:Body>", b"<soapenv:Body>&b;"),
        update_response("<a>" * 1000 + "</a>" * 1000),
        soap_response("").replace(b"?>", b'?><!DOCTYPE x SYSTEM "file:///etc/passwd">'),
    ],
)
def test_invalid_response_is_unreachable(body: bytes) -> None:
    with pytest.raises(Unreachable, match="cannot be parsed"):
        decode_updates(body)


NAMED = change_xml("name", '<val xsi:type="xsd:string">a</val>')
FOLDER = f'<objectSet><kind>enter</kind><obj type="Folder">f</obj>{NAMED}%s</objectSet>'


@pytest.mark.parametrize(
    ("object_set", "missing", "report"),
    [
        (
            FOLDER % change_xml("p", '<val xsi:type="xsd:int">many</val>'),
            ("p",),
            ("Folder", "p", "f"),
        ),
        (
            FOLDER % change_xml("p", '<val xsi:type="xsd:dateTime">soon</val>'),
            ("p",),
            ("Folder", "p", "f"),
        ),
        (
            FOLDER % change_xml("p", '<val xsi:type="xsd:boolean">maybe</val>'),
            ("p",),
            ("Folder", "p", "f"),
        ),
        (
            FOLDER
            % change_xml("p", '<val xsi:type="X"><a><b xsi:type="xsd:int">1e9</b></a></val>'),
            ("p",),
            ("Folder", "p", "f"),
        ),
        (
            FOLDER % change_xml("p", '<val xsi:type="ArrayOfVirtualDevice"/>'),
            ("p",),
            ("Folder", "p", "f"),
        ),
        (
            FOLDER % change_xml("p", '<val xsi:type="ArrayOfString">none</val>'),
            ("p",),
            ("Folder", "p", "f"),
        ),
        (FOLDER % "<changeSet/>", ("",), ("Folder", "", "f")),
        (FOLDER % "<novelty><a/><b/></novelty>", (), None),
        (
            "<objectSet><kind>become</kind><obj type='Folder'>f</obj></objectSet>",
            None,
            ("ObjectUpdate", "obj", ""),
        ),
        (
            "<objectSet><kind>enter</kind><obj type='Folder'/></objectSet>",
            None,
            ("ObjectUpdate", "obj", ""),
        ),
        ("<objectSet><kind>enter</kind></objectSet>", None, ("ObjectUpdate", "obj", "")),
        ("<objectSet/>", None, ("ObjectUpdate", "obj", "")),
    ],
)
def test_part_that_does_not_decode_is_left_out_and_reported(
    object_set: str, missing: tuple[str, ...] | None, report: tuple[str, str, str] | None
) -> None:
    reports = list[tuple[str, str, str]]()
    decoded = decode_updates(
        update_response(FOLDER % "" + object_set + FOLDER % ""),
        lambda type_name, path, ref, error: reports.append((type_name, path, ref)),
    )
    assert decoded is not None
    intact = ObjectUpdate("enter", "Folder", "f", {"name": "a"})
    damaged = (
        [] if missing is None else [ObjectUpdate("enter", "Folder", "f", {"name": "a"}, missing)]
    )
    assert decoded.updates == [intact, *damaged, intact]
    assert reports == ([report] if report else [])


def test_field_that_does_not_decode_is_unset_and_reported() -> None:
    reports = list[tuple[str, str, str]]()
    old = HOST_MAPPING.apply_update(
        Host(ref="x-1"),
        decode_update(
            change_xml("runtime.connectionState", '<val xsi:type="S">connected</val>'),
            change_xml("summary.hardware.cpuMhz", '<val xsi:type="xsd:int">2000</val>'),
        ),
    )
    new = HOST_MAPPING.apply_update(
        old,
        decode_update(
            change_xml("name", '<val xsi:type="xsd:string">a</val>'),
            change_xml("runtime.connectionState", '<val xsi:type="S">entangled</val>'),
            change_xml("summary.hardware.cpuMhz", '<val xsi:type="xsd:string">fast</val>'),
            change_xml(
                "summary.quickStats.overallCpuUsage",
                f'<val xsi:type="xsd:long">{2**63}</val>',
            ),
            type_name="HostSystem",
        ),
        lambda type_name, path, ref, error: reports.append((type_name, path, ref)),
    )
    assert old == Host(ref="x-1", connection="connected", cpu_mhz=2000)
    assert new == Host(ref="x-1", name="a")
    assert reports == [
        ("HostSystem", "runtime.connectionState", "x-1"),
        ("HostSystem", "summary.hardware.cpuMhz", "x-1"),
        ("HostSystem", "summary.quickStats.overallCpuUsage", "x-1"),
    ]


def test_entities_are_not_resolved() -> None:
    hostile = (
        update_response("")
        .replace(b"?>", b'?><!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>')
        .replace(b"<version>7", b"<version>&e;")
    )
    with pytest.raises(Unreachable):
        decode_updates(hostile)


@pytest.mark.parametrize(
    "doctype",
    ['<!DOCTYPE x SYSTEM "{}">', '<!DOCTYPE x [<!ENTITY % e SYSTEM "{}"> %e;]>'],
)
def test_document_type_opens_no_file(tmp_path: Path, doctype: str) -> None:
    file = tmp_path / "x.dtd"
    # If the parser opened it, the error would be about its content.
    file.write_text("<!INVALID")
    body = update_response("").replace(b"?>", b"?>" + doctype.format(file.as_uri()).encode())
    with pytest.raises(Unreachable, match="it has a document type"):
        decode_updates(body)


@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 60))
def test_random_bytes_never_break_the_decoder(noise: bytes, at: int, length: int) -> None:
    whole = enter_response("xsd:int", "1")
    with suppress(Unreachable):
        decode_updates(whole[:at] + noise + whole[at + length :])
