"""Privileges, credentials and the metrics address: plain calls."""

from __future__ import annotations

import pytest

from vsphere_operators.doctor.finding import ok
from vsphere_operators.doctor.metrics_endpoint import _address_in_use
from vsphere_operators.doctor.privileges import RequiredPrivileges, _check_missing_privileges
from vsphere_operators.doctor.vcenter import _renew_credentials_command
from vsphere_operators.vcenters.config import VCenterConfig
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.privileges import Account, EntityRef


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
    need = RequiredPrivileges(
        kinds="VmGroup",
        description="datastores",
        privileges=("Datastore.AllocateSpace",),
        objects=datastores,
    )
    account = Account("key", "EXAMPLE\\ann")
    (complete,) = _check_missing_privileges("VmGroup", [(need, {"ds-1": (), "ds-2": ()})], account)
    assert complete == ok(
        "privileges", 'VmGroup: user "EXAMPLE\\ann" has all required privileges on datastores'
    )
    (partial,) = _check_missing_privileges(
        "VmGroup", [(need, {"ds-1": (), "ds-2": need.privileges})], account
    )
    assert partial.level == "warning"
    assert "on /DC0/datastore/b c, required by VmGroup" in partial.message
    (absent,) = _check_missing_privileges(
        "VmGroup", [(need, dict.fromkeys(("ds-1", "ds-2"), need.privileges))], account
    )
    assert absent.level == "problem"
    assert "on datastores, required by VmGroup" in absent.message
    assert absent.fix == (
        "govc role.create vsphere-operators; "
        "govc role.update -a vsphere-operators Datastore.AllocateSpace && "
        "govc permissions.set -principal 'EXAMPLE\\ann' -role vsphere-operators "
        "-propagate=true /DC0/datastore/a '/DC0/datastore/b c'"
    )


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
