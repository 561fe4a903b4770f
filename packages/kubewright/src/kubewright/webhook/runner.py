"""Everything about webhooks that runs: the endpoint, and whatever keeps its certificate good. On every replica, whoever leads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..client import Client
from ..errors import ConfigError
from ..listen import Address
from ..log import Log
from ..meta import Key
from ..metrics import Metrics
from ..tls import Certificate, CertificateFiles
from .admission import Answering, handlers_of
from .ca_bundle import Target, targets_of
from .configuration import checked
from .conversion import Converting
from .metrics import WebhookMetrics
from .options import WebhookOptions
from .server import Endpoint
from .types import Conversion, Webhook

if TYPE_CHECKING:
    from .cert_rotation import Rotation


class Webhooks:
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
        self.options, self.stopping = options, False
        answering: list[Answering] = [handler for hook in checked(webhooks) for handler in handlers_of(hook)]
        if conversions:
            answering.append(Converting(conversions))
        self.metrics = WebhookMetrics(metrics, [each.path for each in answering])
        self.certificate, self.rotation = certificate_for(options, client, name, namespace, targets_of(webhooks, conversions, name))
        if self.rotation is not None:
            self.metrics.expires(self.rotation.expires_at_seconds)
        where = Address(options.host, options.port)
        self.endpoint = Endpoint(f"{options.host}:{options.port}", where, answering, self.certificate, self.metrics)

    async def start(self) -> None:
        """Listen."""
        await self.endpoint.start()

    async def run(self) -> None:
        """Keep the certificate good, until cancelled."""
        if self.rotation is not None:
            await self.rotation.run()
        elif isinstance(self.certificate, CertificateFiles):
            await self.certificate.reload()
            await self.certificate.keep_current(self.options.times.look_seconds)

    def problem(self) -> str | None:
        """What keeps us from answering, None where nothing does; for /readyz."""
        if self.stopping:
            return "stopping"
        if self.rotation is not None:
            return self.rotation.problem or None
        return None if self.certificate.loaded else f"there is no certificate in {self.options.certificates} yet"

    async def drain(self) -> None:
        """Readiness goes first; answers go on until nobody is sent here any more."""
        self.stopping = True
        await asyncio.sleep(self.options.drain_seconds)

    async def stop(self) -> None:
        """Listen no more, and let answers under way end."""
        await self.endpoint.stop()


def certificate_for(
    options: WebhookOptions, client: Client, name: str, namespace: str, targets: Sequence[Target]
) -> tuple[Certificate, Rotation | None]:
    """What is shown to the API server, and what looks after it where the CA is ours."""
    if not options.own_authority:
        return CertificateFiles(Path(options.certificates), Log("webhook")), None
    try:
        from .cert_rotation import Rotation
    except ImportError as error:
        # Python's own library cannot sign.
        raise ConfigError(
            "a CA of our own for webhooks needs the package cryptography: install kubewright[tls], "
            "or give a directory with tls.crt and tls.key (-webhook-cert-dir)"
        ) from error
    certificate, secret = Certificate(), Key(namespace, options.secret_name(name))
    hosts = options.all_hosts(name, namespace)
    return certificate, Rotation(client, certificate, name=name, secret=secret, hosts=hosts, targets=targets, times=options.times)
