"""The CA of the webhooks as a value: stored in a Secret's data, and rotated step by step.

    current -> 2/3 of its lifetime -> current + next -> next is trusted everywhere
            -> next becomes current, current becomes previous -> previous expires -> current

The current CA signs serving certificates, and the bundle holds all three. A serving certificate is
therefore trusted by every bundle that is one step older or newer. No I/O happens here, and the time
is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ..x509 import KeyPair, create_ca, parse_key_pair
from .options import CertificateTimings

_CA_ROLES = ("current", "next", "previous")


@dataclass(frozen=True)
class CertificateAuthorities:
    """The CA that signs now, the one that signs after it, and the one that signed before it."""

    current: KeyPair
    next: KeyPair | None = None
    previous: KeyPair | None = None

    @property
    def bundle(self) -> bytes:
        """The PEM certificates to trust; the same bytes for the same CAs."""
        authorities = (self.next, self.current, self.previous)
        return b"".join(ca.certificate for ca in authorities if ca is not None)

    def to_secret_data(self) -> dict[str, bytes | None]:
        """The data of the Secret, as a merge patch: None deletes a key."""
        pairs = {role: getattr(self, role) for role in _CA_ROLES}
        return {
            f"{role}.crt": pair.certificate if pair else None for role, pair in pairs.items()
        } | {f"{role}.key": pair.key if pair else None for role, pair in pairs.items()}

    @classmethod
    def from_secret_data(cls, data: dict[str, bytes]) -> CertificateAuthorities | None:
        """Parse the data of the Secret; None if it holds no usable current CA."""
        pairs = {
            role: parse_key_pair(data.get(f"{role}.crt", b""), data.get(f"{role}.key", b""))
            for role in _CA_ROLES
        }
        current = pairs.pop("current")
        return cls(current, **pairs) if current is not None else None


def next_rotation_step(
    authorities: CertificateAuthorities | None,
    now: datetime,
    timings: CertificateTimings,
    name: str,
    *,
    propagated: bool,
) -> CertificateAuthorities:
    """Return the next step, or the same value if no step is due.

    `propagated` means that every caBundle has held the stored bundle for long enough.
    """

    def new_ca() -> KeyPair:
        lifetime = timedelta(seconds=timings.ca_lifetime_seconds)
        return create_ca(f"{name} webhook CA", now, lifetime)

    if authorities is not None and authorities.next and authorities.next.is_expired(now):
        authorities = replace(authorities, next=None)
    if authorities is None or (authorities.current.is_expired(now) and not authorities.next):
        return CertificateAuthorities(new_ca())
    if authorities.previous is not None and authorities.previous.is_expired(now):
        return replace(authorities, previous=None)
    # An expired CA is trusted by no API server, so there is no reason to wait for propagation.
    if authorities.next is not None and (propagated or authorities.current.is_expired(now)):
        return CertificateAuthorities(authorities.next, previous=authorities.current)
    if authorities.next is None and authorities.current.is_renewal_due(now):
        return replace(authorities, next=new_ca())
    return authorities
