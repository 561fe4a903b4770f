"""One vCenter from its address to its inventory: each step needs the one before it, and the last one reached is where the problem is."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ..kinds.vmgroup.placement import DEFAULT_PARENT_FOLDER
from ..vcenters.config import VCenterConfig
from ..vcenters.oneshot import load, visiting
from ..vsphere.address import Address
from ..vsphere.faults import CertificateRefused, VCenterError, WrongLogin
from ..vsphere.vcenter import VCenter
from . import placement, privileges
from .clock import skew
from .finding import Finding, guarded, ok, problem, warning
from .placement import Wanted

OLDEST_API = (7, 0)
SECRET = "vc-creds"


async def check(config: VCenterConfig, groups: Sequence[Wanted]) -> AsyncIterator[Finding]:
    """All of one vCenter; one login, and it is ended."""
    async with visiting(config) as vcenter:
        async for finding in guarded("vCenter", steps(vcenter, config, groups)):
            yield finding


async def steps(vcenter: VCenter, config: VCenterConfig, groups: Sequence[Wanted]) -> AsyncIterator[Finding]:
    """Reach it, log in, read the inventory, look into it."""
    for step in (reach, login):
        finding = await step(vcenter, config)
        yield finding
        if finding.level == "problem":
            yield warning("vCenter", "what comes after this was not looked at")
            return
    if config.address.insecure:
        words = "its certificate is not verified (-insecure): whoever is between here and there can read the password"
        yield warning("TLS", words, trust(config.address))
    # The call through the session: what it asks is the same for everybody.
    theirs = await vcenter.session.call(lambda: vcenter.session.instance.CurrentTime())
    yield skew(theirs, datetime.now(UTC), f"vCenter {config.name}")
    await load(vcenter)
    defaults: Mapping[str, str] = msgspec.structs.asdict(config.defaults)
    for finding in placement.check(vcenter.inventory, defaults, groups):
        yield finding
    parent = (config.defaults.folder or DEFAULT_PARENT_FOLDER).rpartition("/")[2]
    async for finding in guarded("privileges", privileges.check(vcenter.hands, vcenter.inventory, parent)):
        yield finding


async def reach(vcenter: VCenter, config: VCenterConfig) -> Finding:
    """Connection, TLS, and whether it is a vCenter at all."""
    address = config.address
    try:
        about = (await vcenter.soap.content()).about
    except CertificateRefused as error:
        return problem("TLS", str(error), trust(address))
    except VCenterError as error:
        return problem("reach", str(error), f"curl -vk {address.root}{address.path}/vimServiceVersions.xml")
    if about.apiType != "VirtualCenter":
        return problem("reach", f"{address.root} is {about.fullName}, and no vCenter: name the vCenter that manages it")
    number = tuple(int(part) for part in about.apiVersion.split(".")[:2] if part.isdigit())
    if number < OLDEST_API:
        return warning("reach", f"{address.root} is {about.fullName}; older than vSphere 7.0, with which this was never tried")
    return ok("reach", f"{address.root} is {about.fullName}" + ("" if address.insecure else ", with a certificate that is trusted"))


async def login(vcenter: VCenter, config: VCenterConfig) -> Finding:
    """One try: a second with the same password could only help to lock the account."""
    try:
        await vcenter.session.login()
    except WrongLogin as error:
        return problem("login", str(error), renew(config))
    tried = vcenter.session.tried
    return ok("login", f"{tried.who if tried else 'the account'} is accepted")


def trust(address: Address) -> str:
    """Fetch the CA certificates of the vCenter itself, and name them; whoever does so should compare the fingerprint."""
    zip_url = shlex.quote(f"{address.root}/certs/download.zip")
    return (
        f"curl -ko vc-ca.zip {zip_url} && unzip -oj vc-ca.zip 'certs/lin/*.0' -d vc-ca && cat vc-ca/*.0 > vc-ca.pem"
        "   # compare it with your vCenter's, then: manager -vcenter-ca-file=vc-ca.pem"
    )


def renew(config: VCenterConfig) -> str:
    """Where the password is set."""
    if config.credentials_directory:
        name = Path(config.credentials_directory).name
        # One of several vCenters has its address from the list, and its Secret is named after its directory.
        own = name == SECRET
        server = f"--from-literal=GOVMOMI_URL={shlex.quote(config.address.root)} " if own else ""
        return (
            f"kubectl -n vsphere-operators-system create secret generic {SECRET if own else shlex.quote(f'{SECRET}-{name}')} "
            f"--dry-run=client -o yaml {server}--from-literal=GOVMOMI_USERNAME=USER "
            "--from-file=GOVMOMI_PASSWORD=/dev/stdin | kubectl apply -f -"
        )
    return "read -rsp 'password: ' GOVMOMI_PASSWORD && export GOVMOMI_PASSWORD"
