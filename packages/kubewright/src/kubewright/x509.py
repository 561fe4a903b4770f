"""X.509 certificates with P-256 keys: a CA, certificates that it signs, and self-signed ones.

Needs the package cryptography (the extra kubewright[tls]), because Python's standard library cannot
sign. Every function takes the time as an argument, so that tests can move it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# The clock of the machine that verifies a certificate may be behind the clock of this one.
_CLOCK_SKEW = timedelta(minutes=5)
# cert-manager renews at the same point of a certificate's lifetime.
_RENEWAL_FRACTION = 2 / 3
# RFC 5280 limits a common name to 64 characters. Verification uses the subject alternative names.
_MAX_COMMON_NAME = 64
# In the order of RFC 5280: digitalSignature, nonRepudiation, keyEncipherment, dataEncipherment,
# keyAgreement, keyCertSign, cRLSign, encipherOnly, decipherOnly.
_SIGN_CERTIFICATES = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
_SIGN_HANDSHAKES = x509.KeyUsage(True, False, False, False, False, False, False, False, False)

_Extensions = Sequence[tuple[x509.ExtensionType, bool]]


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, both PEM, and the time for which they are valid."""

    certificate: bytes
    key: bytes
    issued_at: datetime
    expires_at: datetime

    def is_renewal_due(self, now: datetime) -> bool:
        return now >= self.issued_at + (self.expires_at - self.issued_at) * _RENEWAL_FRACTION

    def is_expired(self, now: datetime) -> bool:
        return now >= self.expires_at


def create_ca(name: str, now: datetime, lifetime: timedelta) -> KeyPair:
    """Create a self-signed CA that signs leaf certificates only (path length 0)."""
    key, subject = _generate_key(), _name(name)
    extensions = (
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_SIGN_CERTIFICATES, True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
    )
    return _sign(key, subject, subject, key, now, now + lifetime, extensions)


def create_self_signed(host: str, now: datetime, lifetime: timedelta) -> KeyPair:
    """Create a serving certificate for this host name and localhost, without a CA."""
    key, subject = _generate_key(), _name(host)
    # A DNSName holds ASCII only, but a machine's host name may hold any character.
    hosts = [x509.DNSName(name) for name in dict.fromkeys((host, "localhost")) if name.isascii()]
    extensions = ((x509.SubjectAlternativeName(hosts), False),)
    return _sign(key, subject, subject, key, now, now + lifetime, extensions)


def issue_serving_certificate(
    ca: KeyPair, hosts: Sequence[str], now: datetime, lifetime: timedelta
) -> KeyPair:
    """Issue a certificate for these host names and IP addresses; the first is its common name."""
    names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
    return _issue(ca, _name(hosts[0]), ExtendedKeyUsageOID.SERVER_AUTH, now, lifetime, names)


def issue_client_certificate(
    ca: KeyPair, user: str, groups: Sequence[str], now: datetime, lifetime: timedelta
) -> KeyPair:
    """Issue a certificate from which Kubernetes reads the user (CN) and the groups (O)."""
    return _issue(ca, _name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, now, lifetime)


def parse_key_pair(certificate: bytes, key: bytes) -> KeyPair | None:
    """Parse two PEMs; None if one is damaged, or if the key is of another certificate."""
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
        private_key = _load_key(key)
    except (ValueError, TypeError):
        return None
    if private_key.public_key() != parsed.public_key():
        return None
    issued_at = parsed.not_valid_before_utc + _CLOCK_SKEW
    return KeyPair(certificate, key, issued_at, parsed.not_valid_after_utc)


def read_expiry(pem: bytes) -> datetime | None:
    """When the first certificate of a PEM expires; None if it cannot be parsed."""
    try:
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc
    except ValueError:
        return None


def generate_signing_keys() -> tuple[bytes, bytes]:
    """A public and a private key, PEM, that verify and sign service account tokens."""
    key = _generate_key()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return public, _encode_key(key)


def _issue(
    ca: KeyPair,
    subject: x509.Name,
    purpose: x509.ObjectIdentifier,
    now: datetime,
    lifetime: timedelta,
    names: x509.SubjectAlternativeName | None = None,
) -> KeyPair:
    key, ca_key = _generate_key(), _load_key(ca.key)
    issuer = x509.load_pem_x509_certificate(ca.certificate).subject
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_SIGN_HANDSHAKES, True),
        (x509.ExtendedKeyUsage([purpose]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), False),
    ]
    if names is not None:
        extensions.append((names, False))
    # A certificate that outlives its CA would fail verification before it is renewed.
    expires_at = min(now + lifetime, ca.expires_at)
    return _sign(key, subject, issuer, ca_key, now, expires_at, extensions)


def _sign(
    key: EllipticCurvePrivateKey,
    subject: x509.Name,
    issuer: x509.Name,
    issuer_key: EllipticCurvePrivateKey,
    now: datetime,
    expires_at: datetime,
    extensions: _Extensions,
) -> KeyPair:
    builder = x509.CertificateBuilder(
        issuer,
        subject,
        key.public_key(),
        x509.random_serial_number(),
        now - _CLOCK_SKEW,
        expires_at,
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    certificate = builder.sign(issuer_key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return KeyPair(certificate, _encode_key(key), now, expires_at)


def _generate_key() -> EllipticCurvePrivateKey:
    # P-256, because generating an RSA key takes a quarter of a second.
    return generate_private_key(SECP256R1())


def _load_key(pem: bytes) -> EllipticCurvePrivateKey:
    key = load_pem_private_key(pem, None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError("not an elliptic curve key")
    return key


def _encode_key(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _name(common_name: str, organizations: Sequence[str] = ()) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_MAX_COMMON_NAME])]
    attributes += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    return x509.Name(attributes)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
