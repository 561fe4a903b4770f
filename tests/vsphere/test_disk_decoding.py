from __future__ import annotations

from datetime import UTC, datetime

import pytest

from vsphere_operators.vsphere.disk_decoding import (
    decode_attachments,
    decode_disk,
    decode_ids,
    decode_page,
)
from vsphere_operators.vsphere.faults import Rejected, Unreachable
from vsphere_operators.vsphere.model import Disk


def soap_response(method: str, inside: str, namespace: str = "urn:vslm") -> bytes:
    soap = "http://schemas.xmlsoap.org/soap/envelope/"
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><soapenv:Envelope xmlns:soapenv="{soap}">'
        f"<soapenv:Body>"
        f'<{method}Response xmlns="{namespace}">{inside}</{method}Response></soapenv:Body>'
        f"</soapenv:Envelope>"
    ).encode()


# As vCenter sends it: the types in the response of the global catalog are those of vim25.
DISK_XML = (
    '<returnval><config xmlns="urn:vim25"><id><id>7d0a</id></id><name>pvc-a</name>'
    "<createTime>2026-11-16T02:33:06.483045+02:00</createTime>"
    '<backing xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    'xsi:type="BaseConfigInfoDiskFileBackingInfo">'
    '<datastore type="Datastore">datastore-12</datastore><filePath>[vsan] fcd/a.vmdk</filePath>'
    "<backingObjectId>x</backingObjectId>"
    "<provisioningType>eagerZeroedThick</provisioningType></backing>"
    "<capacityInMB>2048</capacityInMB><consumptionType>disk</consumptionType>"
    "<consumerId><id>4229-1</id></consumerId><consumerId><id>4229-2</id></consumerId></config>"
    "</returnval>"
)


def test_decode_disk() -> None:
    assert decode_disk(soap_response("VslmRetrieveVStorageObject", DISK_XML)) == Disk(
        id="7d0a",
        name="pvc-a",
        datastore="datastore-12",
        size_mb=2048,
        file_path="[vsan] fcd/a.vmdk",
        provisioning="eagerZeroedThick",
        created_at=datetime(2026, 11, 16, 0, 33, 6, 483045, tzinfo=UTC),
        attached_vm_uuids=("4229-1", "4229-2"),
    )


def test_decode_disk_with_few_fields() -> None:
    bare = (
        "<returnval><config><id><id>7d0a</id></id><name>raw</name><createTime>never</createTime>"
        "<capacityInMB/></config></returnval>"
    )
    reports = list[tuple[str, str]]()
    disk = decode_disk(
        soap_response("RetrieveVStorageObject", bare, "urn:vim25"),
        lambda type_name, path, ref, error: reports.append((path, ref)),
    )
    assert disk == Disk(id="7d0a", name="raw", datastore="")
    assert reports == [("createTime", "7d0a")]


def test_response_without_a_disk_is_rejected() -> None:
    with pytest.raises(Rejected, match="no disk"):
        decode_disk(soap_response("RetrieveVStorageObject", ""))


def test_decode_page_and_row_fingerprints() -> None:
    row = (
        "<queryResults><id><id>{}</id></id><name>{}</name><capacityInMB>1</capacityInMB>"
        "<datastoreUrl>ds:///a/</datastoreUrl>{}</queryResults>"
    )
    end = "<usedCapacityInMB>{}</usedCapacityInMB>"
    one = decode_page(
        soap_response(
            "L",
            f"<returnval>"
            "<allRecordsReturned>false</allRecordsReturned>"
            f"{row.format('1', 'a', end.format(7))}</returnval>",
        )
    )
    assert not one.is_last
    assert (one.rows[0].id, one.rows[0].datastore_url) == ("1", "ds:///a/")
    other = decode_page(
        soap_response(
            "L",
            f"<returnval>"
            "<allRecordsReturned>true</allRecordsReturned>"
            f"{row.format('1', 'a', end.format(9))}</returnval>",
        )
    )
    assert other.is_last
    assert other.rows == one.rows
    renamed = decode_page(soap_response("L", f"<returnval>{row.format('1', 'b', '')}</returnval>"))
    assert renamed.rows[0].fingerprint != one.rows[0].fingerprint


def test_page_without_rows_is_the_last() -> None:
    assert decode_page(
        soap_response("L", "<returnval><allRecordsReturned>false</allRecordsReturned></returnval>")
    ).is_last
    assert decode_page(soap_response("L", "")).is_last


def test_decode_ids() -> None:
    assert decode_ids(
        soap_response(
            "ListVStorageObject",
            "<returnval><id>1</id></returnval><returnval><id>2</id></returnval>",
        )
    ) == ["1", "2"]
    assert decode_ids(soap_response("ListVStorageObject", "")) == []


def test_decode_attachments() -> None:
    use = "<vmDiskAssociation><vmId>{}</vmId><diskKey>{}</diskKey></vmDiskAssociation>"
    unused = "<returnval><id><id>2</id></id></returnval>"
    body = (
        f"<returnval><id><id>1</id>"
        f"</id>{use.format('b', 2001)}{use.format('a', 2000)}</returnval>{unused}"
    )
    assert decode_attachments(soap_response("VslmRetrieveVStorageObjectAssociations", body)) == {
        "1": ("a/2000", "b/2001"),
        "2": (),
    }


@pytest.mark.parametrize("body", [b"", b"<html>", b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"])
def test_invalid_response_is_unreachable(body: bytes) -> None:
    with pytest.raises(Unreachable, match="cannot be parsed"):
        decode_ids(body)
