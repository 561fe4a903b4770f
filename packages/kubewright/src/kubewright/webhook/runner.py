"""Runs the webhooks of a manager: the server, and the task that keeps its certificate valid.

Webhooks run on every replica, with or without the leader lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..client import Client
from ..errors import ConfigError
from ..kind import Key
from ..listen import ListenAddress
from ..log import Log
from ..metrics import Metrics
from ..tls import CertificateWatcher, ServingCertificate
from .admission import ReviewHandler, create_handlers
from .ca_bundle import CaBundleTarget, find_ca_bundle_targets
from .client_auth import ClientAuthenticator
from .configuration import sort_webhooks
from .conversion import ConversionHandler
from .options import WebhookOptions
from .server import WebhookMetrics, WebhookServer
from .types import Conversion, Webhook

if TYPE_CHECKING:
    from .cert_rotation import CertRotator


class WebhookRunner:
    """The webhooks of one manager, started and stopped with it."""

    def __init__(
        self,
        webhooks: Sequence[Webhook[Any]],
        conversions: Sequence[Conversion[Any, Any]],
        options: WebhookOptions,
        *,
        name: str,
        namespace: str,
        client: Client,
        metrics: Metrics,
    ) -> None:
        """The writes of `client` must not need the leader lease."""
        self.options, self.is_stopping = options, False
        handlers: list[ReviewHandler] = [
            handler for webhook in sort_webhooks(webhooks) for handler in create_handlers(webhook)
        ]
        if conversions:
            handlers.append(ConversionHandler(conversions))
        webhook_metrics = WebhookMetrics(metrics, [handler.path for handler in handlers])
        targets = find_ca_bundle_targets(webhooks, conversions, name)
        self.certificate, self.cert_rotator = _create_certificate(
            options, client, name, namespace, targets
        )
        metrics.watch_certificate("webhooks", self.certificate)
        if self.cert_rotator is not None:
            expiry = webhook_metrics.certificate_expiry.labels()
            expiry.set_function(self.cert_rotator.get_expiry_timestamp)
        self._client_authenticator: ClientAuthenticator | None = None
        if options.client_ca_file:
            self._client_authenticator = ClientAuthenticator(
                Path(options.client_ca_file), options.client_names, self.certificate, Log("webhook")
            )
        address = ListenAddress(options.host, options.port)
        self.server = WebhookServer(
            address,
            handlers,
            self.certificate,
            webhook_metrics,
            client_authenticator=self._client_authenticator,
        )

    async def start(self) -> None:
        if self._client_authenticator is not None:
            await asyncio.to_thread(self._client_authenticator.load)
        await self.server.start()

    async def run(self) -> None:
        """Keep the certificates valid, until cancelled."""
        seconds = self.options.timings.check_interval_seconds
        async with asyncio.TaskGroup() as group:
            group.create_task(self._maintain_certificate(seconds))
            if self._client_authenticator is not None:
                group.create_task(self._client_authenticator.watch(seconds))

    async def _maintain_certificate(self, seconds: float) -> None:
        if self.cert_rotator is not None:
            await self.cert_rotator.run()
        elif isinstance(self.certificate, CertificateWatcher):
            await self.certificate.reload()
            await self.certificate.watch(seconds)

    def readiness_problem(self) -> str | None:
        """The check of /readyz: why the webhooks cannot be served, None if they can."""
        if self.is_stopping:
            return "stopping"
        if self.cert_rotator is not None:
            return self.cert_rotator.problem or None
        if not self.certificate.loaded_pem:
            return f"there is no certificate in {self.options.certificate_dir} yet"
        return None

    async def drain(self) -> None:
        """Report not ready, and keep serving until no API server sends requests to this Pod."""
        self.is_stopping = True
        await asyncio.sleep(self.options.drain_seconds)

    async def stop(self) -> None:
        """Stop listening, and let responses in progress finish."""
        await self.server.stop()


def _create_certificate(
    options: WebhookOptions,
    client: Client,
    name: str,
    namespace: str,
    targets: Sequence[CaBundleTarget],
) -> tuple[ServingCertificate, CertRotator | None]:
    """The serving certificate, and the rotator of the manager's own CA if it has one."""
    if not options.has_own_ca:
        return CertificateWatcher(Path(options.certificate_dir), Log("webhook")), None
    try:
        # Imported here because cryptography is an optional dependency.
        from .cert_rotation import CertRotator
    except ImportError as error:
        raise ConfigError(
            "webhooks without a certificate need the package cryptography to create a CA: install "
            "kubewright[tls], or provide a directory with tls.crt and tls.key (-webhook-cert-dir)"
        ) from error
    certificate = ServingCertificate()
    return certificate, CertRotator(
        client,
        certificate,
        name=name,
        secret=Key(namespace, options.secret_name(name)),
        hosts=options.certificate_hosts(name, namespace),
        targets=targets,
        timings=options.timings,
    )
