"""The steps of a CA: each serving certificate is trusted one step before and after."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kubewright.webhook.ca import CertificateAuthorities, next_rotation_step
from kubewright.webhook.options import CertificateTimings
from kubewright.x509 import issue_serving_certificate

from ..test_x509 import is_trusted

START = datetime(2026, 1, 1, tzinfo=UTC)
TIMINGS = CertificateTimings()
HOSTS = ["a.test", "127.0.0.1"]
DAY = timedelta(days=1)
SERVING_LIFETIME = 30 * DAY


def rotate_once(
    authorities: CertificateAuthorities | None, now: datetime, *, propagated: bool = True
) -> CertificateAuthorities:
    return next_rotation_step(authorities, now, TIMINGS, "op", propagated=propagated)


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
