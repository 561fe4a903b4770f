"""How webhooks are served, and what follows from it: names, hosts, times."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import ConfigError


@dataclass(frozen=True)
class CertificateTimings:
    """How long things last, in seconds; all but the last are about our own CA."""

    ca_lifetime_seconds: float = 365 * 24 * 3600.0
    serving_lifetime_seconds: float = 30 * 24 * 3600.0
    propagation_seconds: float = 60.0
    """How long a new CA has to be in every caBundle before it signs: the API servers' own watches take a moment."""
    check_interval_seconds: float = 10.0
    """How often the files, or the Secret and every caBundle, are looked at."""


@dataclass(frozen=True)
class WebhookOptions:
    """How webhooks are served; `command.py` has the flags for it."""

    host: str = ""
    port: int = 9443
    certificate_dir: str = ""
    """A directory with tls.crt and tls.key; without one there is a CA of our own."""
    service: str = ""
    """The Service in front of us, which the certificate of our own CA is for; `<name>-webhook-service` by default."""
    extra_hosts: tuple[str, ...] = ()
    """Further names and addresses for that certificate."""
    secret: str = ""
    """Where our own CA is kept; `<name>-webhook-ca` by default."""
    timings: CertificateTimings = field(default_factory=CertificateTimings)
    drain_seconds: float = 3.0
    """How long to answer on after readiness went: kubelet's probe, the endpoints and the API server's own watch follow with a delay."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(
                f"{self.port} is no port for webhooks: it has to be from 1 to 65535, or 0 for any that is free"
            )

    @property
    def has_own_ca(self) -> bool:
        """Whether the CA is ours."""
        return not self.certificate_dir

    def service_name(self, name: str) -> str:
        """The Service of the operator of this name."""
        return self.service or f"{name}-webhook-service"

    def secret_name(self, name: str) -> str:
        """The Secret of the operator of this name."""
        return self.secret or f"{name}-webhook-ca"

    def certificate_hosts(self, name: str, namespace: str) -> list[str]:
        """The names that the API server may know us by."""
        service = f"{self.service_name(name)}.{namespace}.svc"
        return [service, f"{service}.cluster.local", *self.extra_hosts]
