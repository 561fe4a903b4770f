"""Checks one vCenter from its address to its inventory.

Each step needs the one before it, so a problem ends the checks of this vCenter.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from ..kinds.vmgroup.placement import DEFAULT_PARENT_FOLDER
from ..vcenters.config import VCenterConfig
from ..vcenters.oneshot import load_inventory, temporary_vcenter
from ..vsphere.address import Address
from ..vsphere.faults import (
    CertificateFileUnusable,
    CertificateRefused,
    CertificateUntrusted,
    Denied,
    NotAuthenticated,
    VCenterError,
    WrongLogin,
)
from ..vsphere.transport import SoapClient
from ..vsphere.vcenter import VCenter
from . import placement, privileges, vmgroups
from .cluster import check_clock_skew
from .finding import Finding, ok, problem, run_check, warning
from .installation import CREDENTIALS_SECRET, Installation
from .placement import VmGroupRequest
from .recording import Recording, read_everything

_MIN_API_VERSION = (7, 0)


async def check(
    config: VCenterConfig,
    groups: Sequence[VmGroupRequest],
    installation: Installation,
    recording: Recording | None = None,
    *,
    serves_vmgroups: bool = True,
) -> AsyncIterator[Finding]:
    """All checks of one vCenter, with one login that is ended afterwards.

    `serves_vmgroups` is False if it is known that no VmGroup uses this vCenter.
    """
    build_soap = recording.build_soap if recording else SoapClient
    async with temporary_vcenter(config, build_soap=build_soap) as vcenter:
        checks = _check_in_order(
            vcenter, config, groups, installation, serves_vmgroups=serves_vmgroups
        )
        async for finding in run_check("vCenter", checks):
            yield finding
        if recording and vcenter.loaded:
            async for finding in run_check("record", read_everything(vcenter)):
                yield finding
    if recording:
        yield await recording.write(
            logged_in=vcenter.session.login_count > 0, loaded=vcenter.loaded
        )


async def _check_in_order(
    vcenter: VCenter,
    config: VCenterConfig,
    groups: Sequence[VmGroupRequest],
    installation: Installation,
    *,
    serves_vmgroups: bool,
) -> AsyncIterator[Finding]:
    for step, next_checks in (
        (_check_reachable, "Login, inventory, VmGroups, privileges and tags"),
        (
            partial(_check_login, installation=installation),
            "Inventory, VmGroups, privileges and tags",
        ),
    ):
        finding = await step(vcenter, config)
        yield finding
        if finding.level == "problem":
            yield warning(
                "vCenter",
                f"{next_checks} were not checked: fix the problem above, then run the doctor again",
            )
            return
    if config.address.insecure:
        yield warning(
            "TLS",
            "The certificate is not verified (-insecure): an attacker on the network can read "
            "the password",
            _trust_ca_command(config.address),
        )
    server_time = await vcenter.session.read_server_time()
    yield check_clock_skew(server_time, datetime.now(UTC), f"vCenter {config.name}")
    try:
        await load_inventory(vcenter)
    except NotAuthenticated:
        raise
    except Denied as error:
        credentials = vcenter.session.attempted_credentials
        user = credentials.username if credentials else ""
        yield privileges.unreadable_inventory_finding(error, user or "USER")
        yield warning(
            "vCenter",
            "VmGroups, other privileges and tags were not checked: the account has to read the "
            "inventory first.",
        )
        return
    defaults: Mapping[str, str] = msgspec.structs.asdict(config.defaults)
    for finding in placement.check(vcenter.inventory, defaults, groups):
        yield finding
    served = [request.group for request in groups if request.group is not None]
    for finding in vmgroups.check_vcenter_identity(served, vcenter.inventory):
        yield finding
    checks = privileges.check(
        vcenter.vm_calls,
        vcenter.inventory,
        config.defaults.folder or DEFAULT_PARENT_FOLDER,
        placement.find_parent_folders(vcenter.inventory, defaults),
        serves_vmgroups=serves_vmgroups,
    )
    async for finding in run_check("privileges", checks):
        yield finding
    if vcenter.inventory.hosts:
        yield await _check_tags(vcenter)


async def _check_tags(vcenter: VCenter) -> Finding:
    credentials = vcenter.session.attempted_credentials
    if credentials is None or not credentials.password:
        return ok("tags", "Not read: the tags of hosts need a login with a password")
    try:
        await vcenter.tags.read()
    except VCenterError as error:
        return warning("tags", f"HostInfo shows no tags, because they cannot be read: {error}")
    if vcenter.tags.by_ref:
        return ok("tags", f"hosts with tags: {len(vcenter.tags.by_ref)}")
    # vCenter leaves out the tags that the account may not see, without an error.
    return ok(
        "tags",
        "No host has a tag that this account sees, so HostInfo shows none. If hosts have tags, "
        "give it the global permission Read-only (vSphere Client: Administration, Global "
        "Permissions).",
    )


async def _check_reachable(vcenter: VCenter, config: VCenterConfig) -> Finding:
    address = config.address
    try:
        about = (await vcenter.soap.get_service_content()).about
    except CertificateRefused as error:
        needs_ca = isinstance(error, CertificateUntrusted | CertificateFileUnusable)
        show_fix = _trust_ca_command if needs_ca else _show_certificate_command
        return problem("TLS", str(error), show_fix(address))
    except VCenterError as error:
        url = shlex.quote(f"{address.base_url}{address.path}/vimServiceVersions.xml")
        return problem("reach", str(error), f"curl -vk {url}   # shows where the connection fails")
    product = about.fullName
    if about.apiType != "VirtualCenter":
        return problem(
            "reach",
            f"{address.base_url} is {product}, not a vCenter; "
            "use the address of the vCenter that manages it",
        )
    version = tuple(int(part) for part in about.apiVersion.split(".")[:2] if part.isdigit())
    if version < _MIN_API_VERSION:
        return warning(
            "reach",
            f"{address.base_url} is {product}; versions before vSphere 7.0 are not tested",
        )
    trusted = "" if address.insecure else " with a trusted certificate"
    return ok("reach", f"{address.base_url} is {product}{trusted}")


async def _check_login(
    vcenter: VCenter, config: VCenterConfig, *, installation: Installation
) -> Finding:
    try:
        # One attempt: a second one with the same password could lock the account.
        await vcenter.session.login()
    except WrongLogin as error:
        credentials = vcenter.session.attempted_credentials
        if credentials is None:
            # They cannot be read: no login was tried.
            return problem("login", str(error), _renew_credentials_command(config, installation))
        return problem(
            "login",
            f"{error.cause} Correct them in {credentials.source}, then run the doctor again. "
            "Each run is one failed login: by default, vCenter locks an account after 5 within 3 "
            "minutes.",
            _renew_credentials_command(config, installation),
        )
    credentials = vcenter.session.attempted_credentials
    return ok("login", f"Logged in as {credentials.description if credentials else 'the account'}")


def _trust_ca_command(address: Address) -> str:
    """Downloads the CA certificates of this vCenter."""
    zip_url = shlex.quote(f"{address.base_url}/certs/download.zip")
    use = (
        f"copy it to {shlex.quote(address.ca_file)}, or in a Pod to the Secret (docs/howto/tls.md)"
        if address.ca_file
        else "manager -vcenter-ca-file=vc-ca.pem"
    )
    return (
        f"curl -ko vc-ca.zip {zip_url} && unzip -oj vc-ca.zip 'certs/lin/*.0' -d vc-ca && "
        "cat vc-ca/*.0 > vc-ca.pem"
        # curl -k does not authenticate the server.
        f"   # verify the fingerprint out of band, then: {use}"
    )


def _show_certificate_command(address: Address) -> str:
    server = shlex.quote(f"{address.host}:{address.port}")
    return (
        f"openssl s_client -connect {server} </dev/null | openssl x509 -noout -subject -dates "
        "-ext subjectAltName   # shows the names and the dates of the certificate"
    )


def _renew_credentials_command(config: VCenterConfig, installation: Installation) -> str:
    """Sets the password where this configuration reads it from."""
    if not config.credentials_directory:
        return "read -rsp 'password: ' GOVMOMI_PASSWORD && export GOVMOMI_PASSWORD"
    # With several vCenters the address is in the -vcenters file.
    is_default = Path(config.credentials_directory).name == CREDENTIALS_SECRET
    server = config.address.base_url if is_default else ""
    return installation.credentials_command(config.credentials_directory, server)
