"""A certificate authority that lives as long as a test run."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = timedelta(days=2)
CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, certificate: Path, key: Path) -> None:
        """Put both into files, the key readable by its owner only."""
        certificate.write_bytes(self.certificate)
        write_private_file(key, self.key)


class CertificateAuthority:
    """Signs serving and client certificates; P-256, because making an RSA key costs a quarter of a second."""

    def __init__(self, name: str) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = (
            new_certificate_builder(self.subject, self.subject, self.key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False
            )
        )
        self.certificate = _encode_certificate(builder.sign(self.key, hashes.SHA256()))

    def issue_serving_certificate(self, *hosts: str) -> KeyPair:
        """A server's certificate, valid for these names and addresses."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
        names = x509.SubjectAlternativeName([general_name(host) for host in hosts])
        return self._issue_certificate(subject, ExtendedKeyUsageOID.SERVER_AUTH, names)

    def issue_client_certificate(self, user: str, groups: tuple[str, ...] = ()) -> KeyPair:
        """A client's certificate: Kubernetes reads the user from CN and the groups from O."""
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        attributes += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        return self._issue_certificate(x509.Name(attributes), ExtendedKeyUsageOID.CLIENT_AUTH)

    def _issue_certificate(
        self,
        subject: x509.Name,
        purpose: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None = None,
    ) -> KeyPair:
        """A new key and its certificate for one purpose."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
        builder = (
            new_certificate_builder(subject, self.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        if names:
            builder = builder.add_extension(names, critical=False)
        return KeyPair(
            _encode_certificate(builder.sign(self.key, hashes.SHA256())), encode_key(key)
        )


def new_certificate_builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    """The part that every certificate has."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
    )


def general_name(host: str) -> x509.GeneralName:
    """An address as an address, a name as a name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def generate_signing_keys() -> tuple[bytes, bytes]:
    """A public and a private key, PEM, for verifying and signing service account tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return public, encode_key(key)


def _encode_certificate(signed: x509.Certificate) -> bytes:
    """The certificate as PEM."""
    return signed.public_bytes(serialization.Encoding.PEM)


def encode_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key as PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    path.touch(mode=0o600)
    path.write_bytes(content)
