"""The steps of a CA: each serving certificate is trusted one step before and after."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509 import verification

from kubewright.webhook.ca import CertificateAuthorities, rotate
from kubewright.webhook.options import CertificateTimings
from kubewright.x509 import KeyPair, create_ca, issue_serving_certificate, parse_key_pair

START = datetime(2026, 1, 1, tzinfo=UTC)
TIMINGS = CertificateTimings()
HOSTS = ["op-webhook-service.sys.svc", "127.0.0.1"]
DAY = timedelta(days=1)
CA_LIFETIME, SERVING_LIFETIME = 365 * DAY, 30 * DAY


def is_trusted(bundle: bytes, serving: KeyPair, now: datetime, host: str = HOSTS[0]) -> bool:
    # Verified by another implementation than the one that signed.
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


def rotate_once(
    authorities: CertificateAuthorities | None, now: datetime, *, propagated: bool = True
) -> CertificateAuthorities:
    return rotate(authorities, now, TIMINGS, "op", propagated=propagated)


def test_steps_of_a_rotation() -> None:
    first = rotate_once(None, START)
    assert (first.next, first.previous) == (None, None)
    assert rotate_once(first, START + 200 * DAY) is first
    both = rotate_once(first, START + 250 * DAY)
    assert both.current == first.current
    assert both.next is not None
    assert both.bundle == both.next.certificate + first.bundle
    assert rotate_once(both, START + 250 * DAY, propagated=False) is both
    rotated = rotate_once(both, START + 250 * DAY)
    assert rotated == CertificateAuthorities(both.next, previous=first.current)
    assert rotate_once(rotated, START + 300 * DAY) is rotated
    assert rotate_once(rotated, START + 366 * DAY) == CertificateAuthorities(both.next)


def test_serving_certificate_is_trusted_one_step_before_and_after() -> None:
    authorities, now = rotate_once(None, START), START
    for _ in range(400):
        now += 5 * DAY
        following = rotate_once(authorities, now)
        for signer in (authorities.current, following.current):
            serving = issue_serving_certificate(signer, HOSTS, now, SERVING_LIFETIME)
            for bundle in (authorities.bundle, following.bundle):
                assert is_trusted(bundle, serving, now)
        authorities = following


def test_expired_ca_is_replaced_at_once() -> None:
    first = rotate_once(None, START)
    late = rotate_once(first, START + 400 * DAY, propagated=False)
    assert late.current != first.current
    assert late.previous is None
    both = rotate_once(first, START + 250 * DAY)
    assert rotate_once(both, START + 366 * DAY, propagated=False).current == both.next
    assert rotate_once(both, START + 800 * DAY, propagated=False).current not in (
        both.current,
        both.next,
    )


def test_serving_certificate_is_for_its_hosts_and_does_not_outlive_its_ca() -> None:
    authority = create_ca("op", START, CA_LIFETIME)
    assert (
        issue_serving_certificate(authority, HOSTS, START, SERVING_LIFETIME).expires_at
        == START + 30 * DAY
    )
    late = issue_serving_certificate(authority, HOSTS, START + 360 * DAY, SERVING_LIFETIME)
    assert late.expires_at == authority.expires_at
    assert is_trusted(authority.certificate, late, START + 361 * DAY)
    assert not is_trusted(authority.certificate, late, START + 366 * DAY)
    assert not is_trusted(authority.certificate, late, START + 361 * DAY, host="another.sys.svc")
    assert not late.is_renewal_due(START + 361 * DAY)
    assert late.is_renewal_due(START + 364 * DAY)


def test_secret_data_round_trip() -> None:
    whole = rotate_once(rotate_once(rotate_once(None, START), START + 250 * DAY), START + 250 * DAY)
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
def test_damaged_secret_gives_no_ca(damage: dict[str, bytes]) -> None:
    whole = {
        key: value
        for key, value in rotate_once(None, START).to_secret_data().items()
        if value is not None
    }
    assert CertificateAuthorities.from_secret_data(whole | damage if damage else {}) is None


def test_key_of_another_certificate_is_rejected() -> None:
    one, other = create_ca("a", START, CA_LIFETIME), create_ca("b", START, CA_LIFETIME)
    assert parse_key_pair(one.certificate, other.key) is None
    assert parse_key_pair(one.certificate, one.key) == one
