"""A certificate authority of our own, as a value: made, kept in a Secret's data, and moved on to the next one. No I/O, no clock of its own.

    current, alone -> 2/3 of its life -> current and next -> next is trusted everywhere -> current and previous -> previous expired

Serving certificates are signed by `current`; the bundle holds all three. So whatever a server shows and whichever of these bundles
an API server has, one step before or after, they fit.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from .options import CertificateTimings

# Clocks differ: a certificate is valid a little before it is made.
CLOCK_SKEW = timedelta(minutes=5)
_RENEWAL_FRACTION = 2 / 3
_CA_ROLES = ("current", "next", "previous")


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key, PEM, and the time between which it is good."""

    certificate: bytes
    key: bytes
    issued_at: datetime
    expires_at: datetime

    def is_renewal_due(self, now: datetime) -> bool:
        """Whether its successor should be made."""
        return now >= self.issued_at + (self.expires_at - self.issued_at) * _RENEWAL_FRACTION

    def is_expired(self, now: datetime) -> bool:
        """Whether it has expired."""
        return now >= self.expires_at


@dataclass(frozen=True)
class CertificateAuthorities:
    """The CA that signs, the one that will, the one that did."""

    current: KeyPair
    next: KeyPair | None = None
    previous: KeyPair | None = None

    @property
    def bundle(self) -> bytes:
        """All that is to be trusted; the same bytes for the same CAs."""
        return b"".join(
            each.certificate
            for each in (self.next, self.current, self.previous)
            if each is not None
        )

    def to_secret_data(self) -> dict[str, bytes | None]:
        """As the data of a Secret; None takes a key out."""
        pairs = {role: getattr(self, role) for role in _CA_ROLES}
        return {
            f"{role}.crt": pair.certificate if pair else None for role, pair in pairs.items()
        } | {f"{role}.key": pair.key if pair else None for role, pair in pairs.items()}

    @classmethod
    def from_secret_data(cls, data: dict[str, bytes]) -> CertificateAuthorities | None:
        """From the data of a Secret; None where nothing usable is in it."""
        found = {
            role: parse_key_pair(data.get(f"{role}.crt", b""), data.get(f"{role}.key", b""))
            for role in _CA_ROLES
        }
        current = found.pop("current")
        return cls(current, **found) if current is not None else None


def rotate(
    known: CertificateAuthorities | None,
    now: datetime,
    times: CertificateTimings,
    name: str,
    *,
    propagated: bool,
) -> CertificateAuthorities:
    """One step on from what is known, or the same. `everywhere` says that all trust the bundle of `known`, and have for long enough."""
    if known is not None and known.next is not None and known.next.is_expired(now):
        known = replace(known, next=None)
    if known is None or (known.current.is_expired(now) and known.next is None):
        return CertificateAuthorities(create_ca(name, now, times))
    if known.previous is not None and known.previous.is_expired(now):
        return replace(known, previous=None)
    if known.next is not None and (propagated or known.current.is_expired(now)):
        return CertificateAuthorities(known.next, previous=known.current)
    if known.next is None and known.current.is_renewal_due(now):
        return replace(known, next=create_ca(name, now, times))
    return known


def create_ca(name: str, now: datetime, times: CertificateTimings) -> KeyPair:
    """A new CA."""
    key = _generate_key()
    subject = _common_name(f"{name} webhook CA")
    expires = now + timedelta(seconds=times.ca_lifetime_seconds)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    builder = (
        new_certificate_builder(subject, subject, key, now, expires)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return KeyPair(_sign_certificate(builder, key), encode_key(key), now, expires)


def issue_serving_certificate(
    authority: KeyPair, hosts: Sequence[str], now: datetime, times: CertificateTimings
) -> KeyPair:
    """A serving certificate for these names and addresses, which does not outlive its CA."""
    key = _generate_key()
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = _load_private_key(authority.key)
    expires = min(now + timedelta(seconds=times.serving_lifetime_seconds), authority.expires_at)
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    builder = (
        new_certificate_builder(_common_name(hosts[0]), issuer.subject, key, now, expires)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .add_extension(
            x509.SubjectAlternativeName([general_name(host) for host in hosts]), critical=False
        )
    )
    return KeyPair(_sign_certificate(builder, issuer_key), encode_key(key), now, expires)


def parse_key_pair(crt: bytes, key: bytes) -> KeyPair | None:
    """A pair from its two PEMs; None where they are missing, damaged, or not of each other."""
    try:
        loaded = x509.load_pem_x509_certificate(crt)
        private = _load_private_key(key)
    except (ValueError, TypeError):
        return None
    if private.public_key() != loaded.public_key():
        return None
    return KeyPair(crt, key, loaded.not_valid_before_utc + CLOCK_SKEW, loaded.not_valid_after_utc)


def _load_private_key(pem: bytes) -> EllipticCurvePrivateKey:
    """The key in this PEM; ValueError or TypeError where there is none of ours."""
    key = load_pem_private_key(pem, None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError("not an elliptic curve key")
    return key


def new_certificate_builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    now: datetime,
    expires: datetime,
) -> x509.CertificateBuilder:
    """The part that every certificate has."""
    return x509.CertificateBuilder(
        issuer, subject, key.public_key(), x509.random_serial_number(), now - CLOCK_SKEW, expires
    )


def _sign_certificate(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> bytes:
    """The finished certificate, PEM."""
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _generate_key() -> EllipticCurvePrivateKey:
    """P-256: making an RSA key costs a quarter of a second."""
    return generate_private_key(SECP256R1())


def encode_key(key: EllipticCurvePrivateKey) -> bytes:
    """The key, not encrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _common_name(text: str) -> x509.Name:
    """A name of at most 64 characters, which is all that X.509 allows; verification goes by other fields."""
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text[:64])])


def general_name(host: str) -> x509.GeneralName:
    """An address as an address, a name as a name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
