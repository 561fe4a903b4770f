"""Certificates, verified by another implementation than the one that signs them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.x509 import verification

from kubewright.x509 import (
    KeyPair,
    create_ca,
    create_self_signed,
    issue_client_certificate,
    issue_serving_certificate,
    parse_key_pair,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
HOSTS = ["a.test", "127.0.0.1"]
DAY = timedelta(days=1)
CA_LIFETIME, SERVING_LIFETIME = 365 * DAY, 30 * DAY


def is_trusted(bundle: bytes, serving: KeyPair, now: datetime, host: str = "a.test") -> bool:
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


def test_serving_certificate_is_for_its_hosts_and_does_not_outlive_its_ca() -> None:
    ca = create_ca("op", START, CA_LIFETIME)
    assert (
        issue_serving_certificate(ca, HOSTS, START, SERVING_LIFETIME).expires_at == START + 30 * DAY
    )
    late = issue_serving_certificate(ca, HOSTS, START + 360 * DAY, SERVING_LIFETIME)
    assert late.expires_at == ca.expires_at
    assert is_trusted(ca.certificate, late, START + 361 * DAY)
    assert not is_trusted(ca.certificate, late, START + 366 * DAY)
    assert not is_trusted(ca.certificate, late, START + 361 * DAY, host="another.sys.svc")
    assert not late.is_renewal_due(START + 361 * DAY)
    assert late.is_renewal_due(START + 364 * DAY)


def test_key_of_another_certificate_is_rejected() -> None:
    one, other = create_ca("a", START, CA_LIFETIME), create_ca("b", START, CA_LIFETIME)
    assert parse_key_pair(one.certificate, other.key) is None
    assert parse_key_pair(one.certificate, one.key) == one


def test_client_certificate_holds_user_and_groups() -> None:
    ca = create_ca("test", START, CA_LIFETIME)
    pair = issue_client_certificate(ca, "ann", ("devs", "ops"), START, SERVING_LIFETIME)
    subject = x509.load_pem_x509_certificate(pair.certificate).subject
    assert subject.rfc4514_string() == "O=ops,O=devs,CN=ann"


def test_self_signed_certificate_is_for_the_host_and_localhost() -> None:
    for host, names in (("a.test", ["a.test", "localhost"]), ("jörg", ["localhost"])):
        pair = create_self_signed(host, START, SERVING_LIFETIME)
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        assert extension.value.get_values_for_type(x509.DNSName) == names
