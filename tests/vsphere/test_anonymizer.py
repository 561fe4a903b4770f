"""Names, addresses and identifiers are replaced by the same text; numbers and states remain."""

from __future__ import annotations

import re

import pytest

from vsphere_operators.vsphere.anonymizer import Anonymizer

from .canned_server import soap_envelope

UUID = "50030000-0000-4000-8000-00000000000a"


def test_same_word_has_the_same_replacement_in_names_paths_and_messages() -> None:
    anonymizer = Anonymizer()
    name = anonymizer.replace_text("web-1")
    assert name == "name1-1001"
    assert (
        anonymizer.replace_text("[fast] web-1/web-1_1.vmdk") == f"[name2] {name}/{name}_1001.vmdk"
    )
    assert anonymizer.replace_text('VM "web-1" is gone') == f'name3 "{name}" name4 name5'
    assert anonymizer.replace_text("/DC0/vm/web-1") == f"/name6/vm/{name}"


def test_different_names_have_different_replacements() -> None:
    anonymizer = Anonymizer()
    names = [
        "name1",
        "name2",
        "a",
        "A",
        "ab",
        "b1",
        "7",
        "42",
        "100",
        "0100",
        "1001",
        "größe",
        "件",
    ]
    assert len({anonymizer.replace_text(word) for word in names}) == len(names)
    assert anonymizer.replace_text("42").isdecimal()


def test_identifiers_and_addresses_stay_valid() -> None:
    anonymizer = Anonymizer()
    uuid = anonymizer.replace_text(UUID)
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid)
    assert uuid != UUID
    assert anonymizer.replace_text(UUID.upper()) == uuid.upper()
    assert anonymizer.replace_text(f"urn:vmomi:InventoryServiceTag:{UUID}:GLOBAL") == (
        f"urn:vmomi:InventoryServiceTag:{uuid}:GLOBAL"
    )
    assert anonymizer.replace_text("10.1.2.3") == "198.18.0.1"
    assert anonymizer.replace_text("https://10.1.2.3:443/sdk") == "https://198.18.0.1:1001/sdk"
    assert anonymizer.replace_text("fe80::250:56ff:fe8a:1") == "2001:db8::1"
    assert anonymizer.replace_text("00:50:56:8A:11:22") == "02:00:00:00:00:01"
    assert anonymizer.replace_text("0000:3b:00.0") == "0000:3b:00.0"


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("powerState", "poweredOn"),
        ("capacityInMB", "1024"),
        ("enabled", "true"),
        ("value", "2026-11-17T15:06:38.398Z"),
        ("descriptionId", "VirtualMachine.clone"),
        ("descriptionId", "vslm.vcenter.VStorageObjectManager.deleteDisk"),
        ("descriptionId", "com.vmware.vcenter.iso.Image.mount"),
        ("name", "vm-operator"),
        ("key", "vsphere-operators.uid"),
        ("name", "topology.corinternal.com/next-maintenance"),
    ],
)
def test_states_numbers_times_and_own_names_remain(field: str, text: str) -> None:
    assert Anonymizer().replace_value(text, field) == text


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("name", "4711"),
        ("value", "4711"),
        ("hostName", "4711"),
        ("serialNumber", "4711"),
        ("identifierValue", "4711"),
        ("defaultValue", "4711"),
        ("someNewField", "secret-host"),
        ("type", 'string["secret-a", "secret-b"]'),
        ("type", "ip:secret"),
        ("descriptionId", "com.secret.backup.run"),
        # Names of VMs, not a mark and an attribute of this product.
        ("name", "vsphere-operators.secret"),
        ("name", "topology.corinternal.com/secret"),
    ],
)
def test_numbers_that_users_choose_and_unknown_fields_are_replaced(field: str, text: str) -> None:
    replaced = Anonymizer().replace_value(text, field)
    assert not re.search(r"4711|secret|host\b.*secret", replaced)


def test_envelope_keeps_its_types_and_paths_and_loses_names_and_secrets() -> None:
    body = soap_envelope(
        '<Login xmlns="urn:vim25"><_this type="SessionManager">SessionManager</_this>'
        "<userName>ann@corp.example</userName><password>canary-4711</password></Login>"
        '<changeSet><name>runtime.host</name><val type="HostSystem">host-1234</val></changeSet>'
        "<changeSet><name>name</name><val>esxi-7</val></changeSet>"
        f"<about><fullName>VMware 8.0.3</fullName><instanceUuid>{UUID}</instanceUuid></about>"
        "<backing><deviceName>VM Network</deviceName></backing>"
        '<missingSet><path>config.extraConfig["guestinfo.blue"]</path></missingSet>'
        "<fault><path>/vmfs/volumes/blue</path></fault>"
    ).replace(
        "<soapenv:Body>",
        '<soapenv:Header><Assertion Issuer="ann"/><vcSessionCookie>key-4711</vcSessionCookie>'
        "</soapenv:Header><soapenv:Body>",
    )
    text = Anonymizer().replace_body(body.encode()).decode()
    for secret in ("ann", "corp", "canary", "4711", "1234", "esxi", UUID, "VM Network", "blue"):
        assert secret not in text
    for kept in (
        ">SessionManager<",
        "<name>runtime.host</name>",
        'type="HostSystem">host-1001<',
        "<name>name</name>",
        "<path>config.extraConfig[",
        "VMware 8.0.3",
        "<password>removed</password>",
    ):
        assert kept in text


@pytest.mark.parametrize("text", ["%73ecret", "s%65cret", "%c3%bc", "\u092e\u0941", "u\u0308"])
def test_escaped_letters_and_accents_are_a_part_of_a_name(text: str) -> None:
    assert re.fullmatch(r"(name\d+)+", Anonymizer().replace_text(text))


def test_escaped_punctuation_remains() -> None:
    assert Anonymizer().replace_text("a%2fb%25%5Cc") == "name1%2fname2%25%5Cname3"


def test_attributes_and_mixed_content_are_replaced() -> None:
    body = soap_envelope(
        f'<obj type="Folder" serverGuid="{UUID}">group-d17</obj><x Issuer="ann">a<b/>corp</x>'
    )
    text = Anonymizer().replace_body(body.encode()).decode()
    for secret in (UUID, "ann", "corp"):
        assert secret not in text
    assert 'type="Folder"' in text


def test_only_the_presence_of_a_vapp_configuration_remains() -> None:
    """It has names of products, URLs, and the values of OVF properties."""
    body = soap_envelope(
        '<propSet><name>config.vAppConfig</name><val xsi:type="VmConfigInfo">'
        "<product><name>billing</name><vendor>corp</vendor><appUrl>http://10.1.2.3</appUrl>"
        "</product><property><id>pin</id><type>ip:VM Network</type>"
        "<defaultValue>4711</defaultValue></property></val></propSet>"
        "<product><name>billing</name></product>"
    )
    text = Anonymizer().replace_body(body.encode()).decode()
    for secret in ("billing", "corp", "10.1.2.3", "VM Network", "4711"):
        assert secret not in text
    assert 'xsi:type="VmConfigInfo"/>' in text


def test_json_and_other_bodies() -> None:
    anonymizer = Anonymizer()
    assert anonymizer.replace_body(b'{"name":"gold","type":"HostSystem","count":1234}') == (
        b'{"name":"name1","type":"HostSystem","count":1234}'
    )
    assert anonymizer.replace_body(b'"a-session-key"') == b'"name2-name3-name4"'
    assert anonymizer.replace_body(b"<html><body>proxy.corp.example<br></body>") == b"removed"
    assert anonymizer.replace_body(b"proxy.corp.example") == b"removed"
    assert anonymizer.replace_body(b"<html>at <b/> proxy.corp.example</html>") == b"removed"
    assert anonymizer.replace_body(b'{"id":"4711","count":4711}') == b'{"id":"1001","count":4711}'
    assert anonymizer.replace_body(b" \n") == b""
    assert anonymizer.replace_path(f"/api/cis/tagging/tag/urn:vmomi:x:{UUID}:GLOBAL") == (
        "/api/cis/tagging/tag/urn:vmomi:x:00000001-0000-4000-8000-000000000001:GLOBAL"
    )
