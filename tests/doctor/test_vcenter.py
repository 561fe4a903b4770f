"""Privileges, credentials and the metrics address: plain calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from vsphere_operators.doctor.finding import Finding, ok
from vsphere_operators.doctor.metrics_endpoint import _address_in_use
from vsphere_operators.doctor.privileges import CheckedRole, _check_missing_privileges
from vsphere_operators.doctor.vcenter import _renew_credentials_command
from vsphere_operators.vcenters.config import VCenterConfig
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.privileges import (
    DATASTORE_ROLE,
    INFO_KINDS,
    ROOT_ROLE,
    Account,
    EntityRef,
)


@pytest.mark.parametrize(
    ("directory", "part"),
    [
        (
            "/etc/vc-creds",
            "generic vc-creds --dry-run=client -o yaml "
            "--from-literal=GOVMOMI_URL=https://vc.example.com:8443 ",
        ),
        (
            "/etc/vcenters/west",
            "generic vc-creds-west --dry-run=client -o yaml --from-literal=GOVMOMI_USERNAME=USER ",
        ),
        ("", "export GOVMOMI_PASSWORD"),
    ],
)
def test_fix_sets_the_password_where_it_is_read(directory: str, part: str) -> None:
    assert part in _renew_credentials_command(
        VCenterConfig("west", Address("vc.example.com", 8443), credentials_directory=directory)
    )


def test_privilege_missing_everywhere_is_a_problem_and_somewhere_a_warning() -> None:
    datastores = [
        EntityRef("Datastore", "ds-1", "/DC0/datastore/a"),
        EntityRef("Datastore", "ds-2", "/DC0/datastore/b c"),
    ]
    account = Account("key", "EXAMPLE\\ann")
    names = DATASTORE_ROLE.privilege_names

    def check(missing: Mapping[str, Sequence[str]]) -> list[Finding]:
        checked = CheckedRole(
            role=DATASTORE_ROLE, location="datastores", objects=datastores, missing=missing
        )
        return list(_check_missing_privileges("VmGroup", [checked], account))

    assert check({"ds-1": (), "ds-2": ()}) == [
        ok("privileges", 'VmGroup: user "EXAMPLE\\ann" has all required privileges on datastores')
    ]
    (partial,) = check({"ds-1": (), "ds-2": names})
    assert partial.level == "warning"
    assert "on /DC0/datastore/b c, required by VmGroup" in partial.message
    (absent,) = check(dict.fromkeys(("ds-1", "ds-2"), names))
    assert absent.level == "problem"
    assert "on datastores, required by VmGroup to store the files of a clone" in absent.message
    assert absent.fix == (
        "govc role.create vsphere-operators-datastore Datastore.AllocateSpace || "
        "govc role.update vsphere-operators-datastore Datastore.AllocateSpace && "
        "govc permissions.set -principal 'EXAMPLE\\ann' -role vsphere-operators-datastore "
        "-propagate=true /DC0/datastore/a '/DC0/datastore/b c'"
        "   # replaces the role that the user has on these objects"
    )


def test_privilege_of_an_option_is_a_warning_and_names_it() -> None:
    checked = CheckedRole(
        role=ROOT_ROLE,
        location=ROOT_ROLE.location,
        objects=[EntityRef("Folder", "group-d1", "/")],
        missing={"group-d1": ["StorageProfile.View"]},
    )
    account = Account("key", "ann")
    (readable,) = _check_missing_privileges(INFO_KINDS, [checked], account)
    assert readable.level == "ok"
    (finding,) = _check_missing_privileges("VmGroup", [checked], account)
    assert finding.level == "warning"
    assert "required by VmGroup with spec.storagePolicy to use a storage policy" in finding.message


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("status 404", "is in use by another process (status 404)"),
        (TimeoutError("timed out"), "did not respond in time; the port is in use by another"),
    ],
)
def test_metrics_address_in_use_can_be_replaced_by_a_free_one(reason: object, message: str) -> None:
    finding = _address_in_use("http://127.0.0.1:8080/metrics", reason)
    assert finding.level == "problem"
    assert message in finding.message
    assert finding.fix.startswith("manager -metrics-addr=:0 ")
