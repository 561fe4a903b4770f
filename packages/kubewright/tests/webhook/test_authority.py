"""The steps of a CA by plain calls, and what must hold between them: whatever is shown is trusted, one step before or after."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509 import verification

from kubewright.webhook.ca import (
    CertificateAuthorities,
    KeyPair,
    create_ca,
    issue_serving_certificate,
    parse_key_pair,
    rotate,
)
from kubewright.webhook.options import CertificateTimings

START = datetime(2026, 1, 1, tzinfo=UTC)
TIMES = CertificateTimings()
HOSTS = ["op-webhook-service.sys.svc", "127.0.0.1"]
DAY = timedelta(days=1)


def trusts(bundle: bytes, serving: KeyPair, now: datetime, host: str = HOSTS[0]) -> bool:
    """Verified by another implementation than the one that signed."""
    store = verification.Store(x509.load_pem_x509_certificates(bundle))
    verifier = (
        verification.PolicyBuilder()
        .store(store)
        .time(now)
        .build_server_verifier(x509.DNSName(host))
    )
    try:
        verifier.verify(x509.load_pem_x509_certificate(serving.certificate), [])
    except verification.VerificationError:
        return False
    return True


def step(
    known: CertificateAuthorities | None, now: datetime, *, everywhere: bool = True
) -> CertificateAuthorities:
    return rotate(known, now, TIMES, "op", propagated=everywhere)


def test_the_life_of_an_authority() -> None:
    first = step(None, START)
    assert (first.next, first.previous) == (None, None)
    assert step(first, START + 200 * DAY) is first
    both = step(first, START + 250 * DAY)
    assert both.current == first.current
    assert both.next is not None
    assert both.bundle == both.next.certificate + first.bundle
    assert step(both, START + 250 * DAY, everywhere=False) is both
    moved = step(both, START + 250 * DAY)
    assert moved == CertificateAuthorities(both.next, previous=first.current)
    assert step(moved, START + 300 * DAY) is moved
    assert step(moved, START + 366 * DAY) == CertificateAuthorities(both.next)


def test_what_is_shown_is_trusted_one_step_before_and_after() -> None:
    known, now = step(None, START), START
    for _ in range(400):
        now += 5 * DAY
        following = step(known, now)
        for signer in (known.current, following.current):
            serving = issue_serving_certificate(signer, HOSTS, now, TIMES)
            for bundle in (known.bundle, following.bundle):
                assert trusts(bundle, serving, now)
        known = following


def test_an_authority_that_expired_unnoticed_is_replaced_at_once() -> None:
    first = step(None, START)
    late = step(first, START + 400 * DAY, everywhere=False)
    assert late.current != first.current
    assert late.previous is None
    both = step(first, START + 250 * DAY)
    assert step(both, START + 366 * DAY, everywhere=False).current == both.next
    assert step(both, START + 800 * DAY, everywhere=False).current not in (both.current, both.next)


def test_a_serving_certificate_does_not_outlive_its_authority_and_is_for_its_hosts() -> None:
    authority = create_ca("op", START, TIMES)
    assert issue_serving_certificate(authority, HOSTS, START, TIMES).expires_at == START + 30 * DAY
    late = issue_serving_certificate(authority, HOSTS, START + 360 * DAY, TIMES)
    assert late.expires_at == authority.expires_at
    assert trusts(authority.certificate, late, START + 361 * DAY)
    assert not trusts(authority.certificate, late, START + 366 * DAY)
    assert not trusts(authority.certificate, late, START + 361 * DAY, host="another.sys.svc")
    assert not late.is_renewal_due(START + 361 * DAY)
    assert late.is_renewal_due(START + 364 * DAY)


def test_a_secret_keeps_it_all() -> None:
    whole = step(step(step(None, START), START + 250 * DAY), START + 250 * DAY)
    data = {key: value for key, value in whole.to_secret_data().items() if value is not None}
    assert set(data) == {"current.crt", "current.key", "previous.crt", "previous.key"}
    assert CertificateAuthorities.from_secret_data(data) == whole
    assert whole.to_secret_data()["next.key"] is None


@pytest.mark.parametrize(
    "damage",
    [
        {},
        {"current.crt": b""},
        {"current.key": b"-----BEGIN"},
        {"current.crt": b"x", "current.key": b"y"},
    ],
)
def test_a_damaged_secret_is_none(damage: dict[str, bytes]) -> None:
    whole = {
        key: value for key, value in step(None, START).to_secret_data().items() if value is not None
    }
    assert CertificateAuthorities.from_secret_data(whole | damage if damage else {}) is None


def test_a_key_of_another_certificate_is_none() -> None:
    one, other = create_ca("a", START, TIMES), create_ca("b", START, TIMES)
    assert parse_key_pair(one.certificate, other.key) is None
    assert parse_key_pair(one.certificate, one.key) == one
