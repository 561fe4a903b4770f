"""Verification of the vCenter's certificate, and the messages when it fails."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kubewright.testing.ca import CertificateAuthority, write_key_pair
from simulator import SimulatedVCenter
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.faults import CertificateFileUnusable, CertificateRefused
from vsphere_operators.vsphere.transport import SoapClient

from .canned_server import RecordingMetrics
from .conftest import SimulatorFactory

FIX_PATTERN = (
    r"Download the CA certificates from https://127\.0\.0\.1:\d+/certs/download\.zip "
    r".*-vcenter-ca-file.*-insecure"
)


async def read_api_type(address: Address) -> str:
    """The API type of the server, by a real call."""
    soap = SoapClient(address, RecordingMetrics())
    try:
        return str((await soap.get_service_content()).about.apiType)
    finally:
        await soap.close()


def make_address(
    vcenter: SimulatedVCenter, ca_file: Path | str = "", *, insecure: bool = False
) -> Address:
    host, port = vcenter.address
    return Address(host, port, ca_file=str(ca_file), insecure=insecure)


async def test_self_signed_certificate_is_refused_unless_trusted(
    simulator: SimulatedVCenter,
) -> None:
    with pytest.raises(
        CertificateRefused,
        match=f"this machine does not trust the CA that signed it.*{FIX_PATTERN}",
    ):
        await read_api_type(make_address(simulator))
    assert await read_api_type(make_address(simulator, simulator.certificate)) == "VirtualCenter"
    assert await read_api_type(make_address(simulator, insecure=True)) == "VirtualCenter"


async def test_connects_with_the_right_ca_bundle_only(
    start_simulator: SimulatorFactory, tmp_path: Path
) -> None:
    authority, stranger = CertificateAuthority("VMCA"), CertificateAuthority("stranger")
    pair = authority.issue_serving_certificate("127.0.0.1")
    write_key_pair(pair, tmp_path / "vc.pem", tmp_path / "vc.key")
    (tmp_path / "ca.pem").write_bytes(stranger.certificate + authority.certificate)
    (tmp_path / "stranger.pem").write_bytes(stranger.certificate)
    vcenter = await start_simulator(f"--cert={tmp_path / 'vc.pem'}", f"--key={tmp_path / 'vc.key'}")
    assert await read_api_type(make_address(vcenter, tmp_path / "ca.pem")) == "VirtualCenter"
    assert await read_api_type(make_address(vcenter, tmp_path / "vc.pem")) == "VirtualCenter", (
        "the server's own certificate may be what is trusted"
    )
    with pytest.raises(
        CertificateRefused,
        match=f"{re.escape(str(tmp_path / 'stranger.pem'))} does not contain the CA that signed "
        f"it.*{FIX_PATTERN}",
    ):
        await read_api_type(make_address(vcenter, tmp_path / "stranger.pem"))


async def test_expired_certificate_is_refused(start_simulator: SimulatorFactory) -> None:
    vcenter = await start_simulator("--tls-expired")
    with pytest.raises(
        CertificateRefused,
        match=r"certificate has expired\. Renew the vCenter's certificate, or check this "
        r"machine's clock",
    ):
        await read_api_type(make_address(vcenter, vcenter.certificate))
    assert await read_api_type(make_address(vcenter, insecure=True)) == "VirtualCenter"


async def test_certificate_for_another_name_is_refused(
    start_simulator: SimulatorFactory,
) -> None:
    vcenter = await start_simulator("--tls-name=vc.example.com")
    message = r"Use the name in the certificate instead of 127\.0\.0\.1"
    with pytest.raises(CertificateRefused, match=message):
        await read_api_type(make_address(vcenter, vcenter.certificate))
    with pytest.raises(CertificateRefused, match=r"in the certificate instead of localhost"):
        await read_api_type(replace(make_address(vcenter, vcenter.certificate), host="localhost"))
    assert await read_api_type(make_address(vcenter, insecure=True)) == "VirtualCenter"


async def test_invalid_ca_bundle_is_reported(simulator: SimulatedVCenter, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("no certificate\n")
    with pytest.raises(
        CertificateFileUnusable,
        match=r"the CA file .*empty\.pem cannot be used: no certificate or crl found\.",
    ):
        await read_api_type(make_address(simulator, tmp_path / "empty.pem"))
    with pytest.raises(
        CertificateFileUnusable,
        match=r"missing\.pem cannot be used: No such file or directory\. Check its path",
    ):
        await read_api_type(make_address(simulator, tmp_path / "missing.pem"))


async def test_invalid_client_certificate_is_reported(
    simulator: SimulatedVCenter, tmp_path: Path
) -> None:
    (tmp_path / "tls.crt").write_text("none\n")
    address = replace(
        make_address(simulator, simulator.certificate),
        certificate_file=str(tmp_path / "tls.crt"),
        key_file=str(tmp_path / "tls.crt"),
    )
    with pytest.raises(CertificateRefused, match=r"tls\.crt \(or its key\) cannot be used"):
        await read_api_type(address)
