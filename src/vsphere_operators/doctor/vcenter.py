"""Checks one vCenter from its address to its inventory.

Each step needs the one before it, so a problem ends the checks of this vCenter.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ..kinds.vmgroup.placement import DEFAULT_PARENT_FOLDER
from ..vcenters.config import VCenterConfig
from ..vcenters.oneshot import load_inventory, temporary_vcenter
from ..vsphere.address import Address
from ..vsphere.faults import CertificateRefused, Denied, NotAuthenticated, VCenterError, WrongLogin
from ..vsphere.transport import SoapClient
from ..vsphere.vcenter import VCenter
from . import placement, privileges
from .cluster import check_clock_skew
from .finding import Finding, ok, problem, run_check, warning
from .placement import VmGroupRequest
from .recording import Recording, read_everything

_MIN_API_VERSION = (7, 0)
_CREDENTIALS_SECRET = "vc-creds"


async def check(
    config: VCenterConfig, groups: Sequence[VmGroupRequest], recording: Recording | None = None
) -> AsyncIterator[Finding]:
    """All checks of one vCenter, with one login that is ended afterwards."""
    build_soap = recording.build_soap if recording else SoapClient
    async with temporary_vcenter(config, build_soap=build_soap) as vcenter:
        async for finding in run_check("vCenter", _check_in_order(vcenter, config, groups)):
            yield finding
        if recording and vcenter.loaded:
            async for finding in run_check("record", read_everything(vcenter)):
                yield finding
    if recording:
        yield await recording.write(
            logged_in=vcenter.session.login_count > 0, loaded=vcenter.loaded
        )


async def _check_in_order(
    vcenter: VCenter, config: VCenterConfig, groups: Sequence[VmGroupRequest]
) -> AsyncIterator[Finding]:
    for step in (_check_reachable, _check_login):
        finding = await step(vcenter, config)
        yield finding
        if finding.level == "problem":
            yield warning("vCenter", "Remaining checks skipped.")
            return
    if config.address.insecure:
        yield warning(
            "TLS",
            "The certificate is not verified (-insecure): an attacker on the network can read "
            "the password",
            _trust_ca_command(config.address),
        )
    server_time = await vcenter.session.call(
        # The service instance changes at a re-login, so it is read inside the call.
        lambda: vcenter.session.service_instance.CurrentTime()
    )
    yield check_clock_skew(server_time, datetime.now(UTC), f"vCenter {config.name}")
    try:
        await load_inventory(vcenter)
    except NotAuthenticated:
        raise
    except Denied as error:
        credentials = vcenter.session.attempted_credentials
        user = credentials.username if credentials else ""
        yield privileges.unreadable_inventory_finding(error, user or "USER")
        return
    defaults: Mapping[str, str] = msgspec.structs.asdict(config.defaults)
    for finding in placement.check(vcenter.inventory, defaults, groups):
        yield finding
    parent = (config.defaults.folder or DEFAULT_PARENT_FOLDER).rpartition("/")[2]
    async for finding in run_check(
        "privileges", privileges.check(vcenter.vm_calls, vcenter.inventory, parent)
    ):
        yield finding


async def _check_reachable(vcenter: VCenter, config: VCenterConfig) -> Finding:
    address = config.address
    try:
        about = (await vcenter.soap.get_service_content()).about
    except CertificateRefused as error:
        return problem("TLS", str(error), _trust_ca_command(address))
    except VCenterError as error:
        return problem(
            "reach", str(error), f"curl -vk {address.base_url}{address.path}/vimServiceVersions.xml"
        )
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


async def _check_login(vcenter: VCenter, config: VCenterConfig) -> Finding:
    try:
        # One attempt: a second one with the same password could lock the account.
        await vcenter.session.login()
    except WrongLogin as error:
        return problem("login", str(error), _renew_credentials_command(config))
    credentials = vcenter.session.attempted_credentials
    return ok("login", f"Logged in as {credentials.description if credentials else 'the account'}")


def _trust_ca_command(address: Address) -> str:
    """Downloads the CA certificates of this vCenter."""
    zip_url = shlex.quote(f"{address.base_url}/certs/download.zip")
    return (
        f"curl -ko vc-ca.zip {zip_url} && unzip -oj vc-ca.zip 'certs/lin/*.0' -d vc-ca && "
        "cat vc-ca/*.0 > vc-ca.pem"
        # curl -k does not authenticate the server.
        "   # verify the fingerprint out of band, then: manager -vcenter-ca-file=vc-ca.pem"
    )


def _renew_credentials_command(config: VCenterConfig) -> str:
    """Sets the password where this configuration reads it from."""
    if not config.credentials_directory:
        return "read -rsp 'password: ' GOVMOMI_PASSWORD && export GOVMOMI_PASSWORD"
    directory = Path(config.credentials_directory).name
    if directory == _CREDENTIALS_SECRET:
        secret = _CREDENTIALS_SECRET
        server = f"--from-literal=GOVMOMI_URL={shlex.quote(config.address.base_url)} "
    else:
        # With several vCenters the address is in the -vcenters file, and each Secret is named
        # after its directory.
        secret, server = shlex.quote(f"{_CREDENTIALS_SECRET}-{directory}"), ""
    return (
        f"kubectl -n vsphere-operators-system create secret generic {secret} "
        f"--dry-run=client -o yaml {server}--from-literal=GOVMOMI_USERNAME=USER "
        "--from-file=GOVMOMI_PASSWORD=/dev/stdin | kubectl apply -f -"
    )
