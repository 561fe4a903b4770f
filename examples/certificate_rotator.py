"""A certificate in a Secret, signed by the CA of another Secret, and renewed in time.

It is issued again when the hosts or the CA change, when two thirds of its lifetime are over, and
when the Secret is damaged or gone.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from kubewright import (
    Column,
    Controller,
    Doc,
    Done,
    Key,
    ObjectMeta,
    Resource,
    Secret,
    Spec,
    Status,
    Terminal,
    Waiting,
    kind,
)
from kubewright.x509 import KeyPair, issue_serving_certificate, parse_key_pair

HOSTS_ANNOTATION = "examples.kubewright.dev/hosts"


class CertificateSpec(Spec):
    hosts: Annotated[list[str], Doc("Host names and IP addresses.", min_length=1)]
    caSecret: Annotated[str, Doc("Secret with tls.crt and tls.key of the CA.")]
    lifetimeSeconds: Annotated[int, Doc("How long a certificate is valid.", ge=3)] = 90 * 86400


class CertificateStatus(Status):
    notAfter: Annotated[datetime | None, Doc("When the certificate expires.")] = None
    renewalTime: Annotated[datetime | None, Doc("When the next one will be issued.")] = None


@kind("examples.kubewright.dev/v1", columns=[Column("Expires", ".status.notAfter")])
class Certificate(Resource[CertificateSpec, CertificateStatus]):
    """A certificate in the Secret of the same name."""


class CertificateController(Controller[Certificate]):
    def __init__(self) -> None:
        self.owns(Secret)
        self.watches(Secret, index_by=lambda certificate: certificate.spec.caSecret)

    async def reconcile(self, certificate: Certificate) -> Done | Waiting:
        spec, now = certificate.spec, datetime.now(UTC)
        ca_key = Key(certificate.metadata.namespace, spec.caSecret)
        ca_secret = self.cache.get(Secret, ca_key)
        if ca_secret is None:
            return Waiting("CAMissing", f"Secret {ca_key} does not exist.")
        ca = read_pair(ca_secret)
        if ca is None:
            raise Terminal("CAInvalid", f"Secret {ca_key} needs a valid tls.crt and tls.key.")
        pair = reusable_pair(self.cache.get(Secret, certificate.key), certificate, ca, now)
        if pair is None:
            self.event(certificate, "Normal", "Issued", f"Issued for {', '.join(spec.hosts)}.")
            pair = issue_serving_certificate(
                ca, spec.hosts, now, timedelta(seconds=spec.lifetimeSeconds)
            )
        await self.apply(certificate, build_secret(certificate, pair, ca))
        renewal = renewal_time(pair)
        certificate.status = CertificateStatus(notAfter=pair.expires_at, renewalTime=renewal)
        return Done(requeue_after_seconds=max(0.0, (renewal - now).total_seconds()))


def read_pair(secret: Secret) -> KeyPair | None:
    return parse_key_pair(secret.data.get("tls.crt", b""), secret.data.get("tls.key", b""))


def renewal_time(pair: KeyPair) -> datetime:
    return pair.issued_at + (pair.expires_at - pair.issued_at) * 2 / 3


def reusable_pair(
    secret: Secret | None, certificate: Certificate, ca: KeyPair, now: datetime
) -> KeyPair | None:
    """The stored certificate, unless another one has to be issued."""
    if secret is None or secret.data.get("ca.crt") != ca.certificate:
        return None
    if secret.metadata.annotations.get(HOSTS_ANNOTATION) != ",".join(certificate.spec.hosts):
        return None
    pair = read_pair(secret)
    return pair if pair is not None and now < renewal_time(pair) else None


def build_secret(certificate: Certificate, pair: KeyPair, ca: KeyPair) -> Secret:
    annotations = {HOSTS_ANNOTATION: ",".join(certificate.spec.hosts)}
    return Secret(
        metadata=ObjectMeta(name=certificate.metadata.name, annotations=annotations),
        type="kubernetes.io/tls",
        data={"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": ca.certificate},
    )
