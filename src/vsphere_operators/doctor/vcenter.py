"""One vCenter from its address to its inventory: each step needs the one before it, and the last one reached is where the problem is."""

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
from ..vsphere.faults import CertificateRefused, VCenterError, WrongLogin
from ..vsphere.vcenter import VCenter
from . import placement, privileges
from .clock import check_clock_skew
from .finding import Finding, ok, problem, run_check, warning
from .placement import VmGroupRequest

_MIN_API_VERSION = (7, 0)
_CREDENTIALS_SECRET = "vc-creds"


async def check(config: VCenterConfig, groups: Sequence[VmGroupRequest]) -> AsyncIterator[Finding]:
    """All of one vCenter; one login, and it is ended."""
    async with temporary_vcenter(config) as vcenter:
        async for finding in run_check("vCenter", _check_in_order(vcenter, config, groups)):
            yield finding


async def _check_in_order(
    vcenter: VCenter, config: VCenterConfig, groups: Sequence[VmGroupRequest]
) -> AsyncIterator[Finding]:
    """Reach it, log in, read the inventory, look into it."""
    for step in (_check_reachable, _check_login):
        finding = await step(vcenter, config)
        yield finding
        if finding.level == "problem":
            yield warning("vCenter", "what comes after this was not looked at")
            return
    if config.address.insecure:
        words = "its certificate is not verified (-insecure): whoever is between here and there can read the password"
        yield warning("TLS", words, _trust_ca_command(config.address))
    # The call through the session: what it asks is the same for everybody.
    theirs = await vcenter.session.call(lambda: vcenter.session.service_instance.CurrentTime())
    yield check_clock_skew(theirs, datetime.now(UTC), f"vCenter {config.name}")
    await load_inventory(vcenter)
    defaults: Mapping[str, str] = msgspec.structs.asdict(config.defaults)
    for finding in placement.check(vcenter.inventory, defaults, groups):
        yield finding
    parent = (config.defaults.folder or DEFAULT_PARENT_FOLDER).rpartition("/")[2]
    async for finding in run_check(
        "privileges", privileges.check(vcenter.vm_calls, vcenter.inventory, parent)
    ):
        yield finding


async def _check_reachable(vcenter: VCenter, config: VCenterConfig) -> Finding:
    """Connection, TLS, and whether it is a vCenter at all."""
    address = config.address
    try:
        about = (await vcenter.soap.get_service_content()).about
    except CertificateRefused as error:
        return problem("TLS", str(error), _trust_ca_command(address))
    except VCenterError as error:
        return problem(
            "reach", str(error), f"curl -vk {address.base_url}{address.path}/vimServiceVersions.xml"
        )
    if about.apiType != "VirtualCenter":
        return problem(
            "reach",
            f"{address.base_url} is {about.fullName}, and no vCenter: name the vCenter that manages it",
        )
    number = tuple(int(part) for part in about.apiVersion.split(".")[:2] if part.isdigit())
    if number < _MIN_API_VERSION:
        return warning(
            "reach",
            f"{address.base_url} is {about.fullName}; older than vSphere 7.0, with which this was never tried",
        )
    return ok(
        "reach",
        f"{address.base_url} is {about.fullName}"
        + ("" if address.insecure else ", with a certificate that is trusted"),
    )


async def _check_login(vcenter: VCenter, config: VCenterConfig) -> Finding:
    """One try: a second with the same password could only help to lock the account."""
    try:
        await vcenter.session.login()
    except WrongLogin as error:
        return problem("login", str(error), renew_credentials_command(config))
    tried = vcenter.session.attempted_credentials
    return ok("login", f"{tried.description if tried else 'the account'} is accepted")


def _trust_ca_command(address: Address) -> str:
    """Fetch the CA certificates of the vCenter itself, and name them; whoever does so should compare the fingerprint."""
    zip_url = shlex.quote(f"{address.base_url}/certs/download.zip")
    return (
        f"curl -ko vc-ca.zip {zip_url} && unzip -oj vc-ca.zip 'certs/lin/*.0' -d vc-ca && cat vc-ca/*.0 > vc-ca.pem"
        "   # compare it with your vCenter's, then: manager -vcenter-ca-file=vc-ca.pem"
    )


def renew_credentials_command(config: VCenterConfig) -> str:
    """Where the password is set."""
    if config.credentials_directory:
        name = Path(config.credentials_directory).name
        # One of several vCenters has its address from the list, and its Secret is named after its directory.
        own = name == _CREDENTIALS_SECRET
        server = (
            f"--from-literal=GOVMOMI_URL={shlex.quote(config.address.base_url)} " if own else ""
        )
        return (
            f"kubectl -n vsphere-operators-system create secret generic {_CREDENTIALS_SECRET if own else shlex.quote(f'{_CREDENTIALS_SECRET}-{name}')} "
            f"--dry-run=client -o yaml {server}--from-literal=GOVMOMI_USERNAME=USER "
            "--from-file=GOVMOMI_PASSWORD=/dev/stdin | kubectl apply -f -"
        )
    return "read -rsp 'password: ' GOVMOMI_PASSWORD && export GOVMOMI_PASSWORD"
