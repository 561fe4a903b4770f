"""Privileges, credentials and the metrics address: plain calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from support.inventory_builder import enter_update, make_inventory
from vsphere_operators.doctor.finding import Finding, ok
from vsphere_operators.doctor.installation import Installation
from vsphere_operators.doctor.metrics_endpoint import _address_in_use
from vsphere_operators.doctor.privileges import (
    CheckedRole,
    _check_missing_privileges,
    _list_objects,
)
from vsphere_operators.doctor.vcenter import _renew_credentials_command, _trust_ca_command
from vsphere_operators.vcenters.config import VCenterConfig
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.privileges import (
    DATASTORE_ROLE,
    FOLDER_ROLE,
    INFO_KINDS,
    ROOT_ROLE,
    TEMPLATE_ROLE,
    Account,
    EntityRef,
    Role,
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
    address = Address("vc.example.com", 8443)
    config = VCenterConfig("west", address, credentials_directory=directory)
    command = _renew_credentials_command(config, Installation(namespace="ops"))
    assert part in command
    assert ("kubectl -n ops create secret " in command) == bool(directory)


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


def make_checked_role(role: Role, *refs: str, missing: Sequence[str] = ()) -> CheckedRole:
    return CheckedRole(
        role=role,
        location=role.location,
        objects=[EntityRef(role.entity_type, ref, f"/{ref}") for ref in refs],
        missing=dict.fromkeys(refs, missing),
    )


def test_privileges_of_a_kind_without_objects_are_warnings() -> None:
    folder = make_checked_role(FOLDER_ROLE, "group-v3", missing=FOLDER_ROLE.privilege_names)
    account = Account("key", "ann")
    levels = [item.level for item in _check_missing_privileges("VmGroup", [folder], account)]
    # One finding for all privileges that the same objects lack, one for those of an option.
    assert levels == ["problem", "warning"]
    reader, option = _check_missing_privileges("VmGroup", [folder], account, in_use=False)
    assert (reader.level, option.level) == ("warning", "warning")
    assert (
        'User "ann" lacks 11 privileges on the parent folder of VmGroups, required by VmGroup: '
        "Folder.Create, Folder.Delete, " in reader.message
    )
    assert reader.message.endswith(
        ". No VmGroup exists here, so ignore this if you do not use that kind"
    )


def test_privileges_on_objects_that_are_not_there_are_not_reported_as_ok() -> None:
    checked = [
        make_checked_role(ROOT_ROLE, "group-d1"),
        make_checked_role(FOLDER_ROLE),
        make_checked_role(TEMPLATE_ROLE),
    ]
    checked_finding, unchecked = _check_missing_privileges(
        "VmGroup", checked, Account("key", "ann")
    )
    assert checked_finding == ok(
        "privileges", 'VmGroup: user "ann" has all required privileges on the root folder'
    )
    assert unchecked.level == "warning"
    assert (
        "privileges on the parent folder of VmGroups, templates were not checked"
        in unchecked.message
    )
    # The other kinds need neither.
    (finding,) = _check_missing_privileges(INFO_KINDS, checked, Account("key", "ann"))
    assert finding.level == "ok"


def test_only_the_first_of_many_objects_are_checked() -> None:
    updates = [
        enter_update("Datastore", f"datastore-{number}", f"store-{number}", "group-s1")
        for number in range(100, 130)
    ]
    inventory = make_inventory()
    inventory.apply(updates)
    count = len(inventory.datastores)
    location, objects = next(
        (location, objects)
        for role, location, objects in _list_objects(inventory, "the folder", (), ())
        if role is DATASTORE_ROLE
    )
    assert location == f"the first 20 of {count} datastores"
    assert len(objects) == 20


@pytest.mark.parametrize(
    ("ca_file", "use"),
    [
        ("", "then: manager -vcenter-ca-file=vc-ca.pem"),
        ("/etc/vc-creds/ca.crt", "then: copy it to /etc/vc-creds/ca.crt, or in a Pod to the Secr"),
    ],
)
def test_ca_is_put_where_it_is_read(ca_file: str, use: str) -> None:
    assert use in _trust_ca_command(Address("vc.example.com", ca_file=ca_file))


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
