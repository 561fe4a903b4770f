"""How webhooks are served: their port, certificate, Service, Secret, host names and timings."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import ConfigError


@dataclass(frozen=True)
class CertificateTimings:
    """Lifetimes and intervals of the webhooks' CA and certificates, in seconds."""

    ca_lifetime_seconds: float = 365 * 24 * 3600.0
    serving_lifetime_seconds: float = 30 * 24 * 3600.0
    propagation_seconds: float = 60.0
    """How long a new CA has to be in every caBundle before it signs certificates.

    The watches of the API servers see a changed caBundle only after a moment.
    """
    check_interval_seconds: float = 10.0
    """How often the certificate files, or the Secret and every caBundle, are checked."""


@dataclass(frozen=True)
class WebhookOptions:
    """How webhooks are served; the module `command` has the flags."""

    host: str = ""
    port: int = 9443
    certificate_dir: str = ""
    """A directory with tls.crt and tls.key. If empty, the manager has its own CA."""
    service: str = ""
    """The Service of the webhooks, which the certificate is issued for.

    Defaults to `<name>-webhook-service`.
    """
    extra_hosts: tuple[str, ...] = ()
    """Additional host names and IP addresses of the certificate."""
    client_ca_file: str = ""
    """The CA of the API server's client certificate. If empty, no certificate is required."""
    client_names: tuple[str, ...] = ()
    """The common names of the client certificates to accept. If empty, all of that CA."""
    secret: str = ""
    """The Secret that stores the CA. Defaults to `<name>-webhook-ca`."""
    timings: CertificateTimings = field(default_factory=CertificateTimings)
    drain_seconds: float = 3.0
    """How long to keep serving after readiness has failed on shutdown.

    The probe of kubelet, the endpoints of the Service and the API server's watch follow later.
    """

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(
                f"invalid webhook port {self.port}: must be from 1 to 65535, or 0 for any free port"
            )
        if self.client_names and not self.client_ca_file:
            raise ConfigError(
                "-webhook-client-names needs -webhook-client-ca-file, the CA that signed the "
                "certificates with these names"
            )

    @property
    def has_own_ca(self) -> bool:
        return not self.certificate_dir

    def service_name(self, name: str) -> str:
        return self.service or f"{name}-webhook-service"

    def secret_name(self, name: str) -> str:
        return self.secret or f"{name}-webhook-ca"

    def certificate_hosts(self, name: str, namespace: str) -> list[str]:
        """The host names and IP addresses that the API server may connect to."""
        service = f"{self.service_name(name)}.{namespace}.svc"
        return [service, f"{service}.cluster.local", *self.extra_hosts]
