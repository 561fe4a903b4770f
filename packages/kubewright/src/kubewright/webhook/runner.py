"""Everything about webhooks that runs: the endpoint, and whatever keeps its certificate good. On every replica, whoever leads."""

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
from .configuration import check_webhooks
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
        """`client` is one whose writes need no lease."""
        self.options, self.is_stopping = options, False
        answering: list[ReviewHandler] = [
            handler for hook in check_webhooks(webhooks) for handler in create_handlers(hook)
        ]
        if conversions:
            answering.append(ConversionHandler(conversions))
        self.metrics = WebhookMetrics(metrics, [each.path for each in answering])
        self.certificate, self.cert_rotator = create_certificate(
            options, client, name, namespace, find_ca_bundle_targets(webhooks, conversions, name)
        )
        if self.cert_rotator is not None:
            self.metrics.set_expiry_function(self.cert_rotator.get_expiry_seconds)
        where = ListenAddress(options.host, options.port)
        self.server = WebhookServer(
            f"{options.host}:{options.port}", where, answering, self.certificate, self.metrics
        )

    async def start(self) -> None:
        """Listen."""
        await self.server.start()

    async def run(self) -> None:
        """Keep the certificate good, until cancelled."""
        if self.cert_rotator is not None:
            await self.cert_rotator.run()
        elif isinstance(self.certificate, CertificateWatcher):
            await self.certificate.reload()
            await self.certificate.watch(self.options.timings.check_interval_seconds)

    def readiness_problem(self) -> str | None:
        """What keeps us from answering, None where nothing does; for /readyz."""
        if self.is_stopping:
            return "stopping"
        if self.cert_rotator is not None:
            return self.cert_rotator.problem or None
        return (
            None
            if self.certificate.loaded_pem
            else f"there is no certificate in {self.options.certificate_dir} yet"
        )

    async def drain(self) -> None:
        """Readiness goes first; answers go on until nobody is sent here any more."""
        self.is_stopping = True
        await asyncio.sleep(self.options.drain_seconds)

    async def stop(self) -> None:
        """Listen no more, and let answers under way end."""
        await self.server.stop()


def create_certificate(
    options: WebhookOptions,
    client: Client,
    name: str,
    namespace: str,
    targets: Sequence[CaBundleTarget],
) -> tuple[ServingCertificate, CertRotator | None]:
    """What is shown to the API server, and what looks after it where the CA is ours."""
    if not options.has_own_ca:
        return CertificateWatcher(Path(options.certificate_dir), Log("webhook")), None
    try:
        from .cert_rotation import CertRotator
    except ImportError as error:
        # Python's own library cannot sign.
        raise ConfigError(
            "a CA of our own for webhooks needs the package cryptography: install kubewright[tls], "
            "or give a directory with tls.crt and tls.key (-webhook-cert-dir)"
        ) from error
    certificate, secret = ServingCertificate(), Key(namespace, options.secret_name(name))
    hosts = options.certificate_hosts(name, namespace)
    return certificate, CertRotator(
        client,
        certificate,
        name=name,
        secret=secret,
        hosts=hosts,
        targets=targets,
        timings=options.timings,
    )
