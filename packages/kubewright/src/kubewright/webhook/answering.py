"""Everything about webhooks that runs: the endpoint, and whatever keeps its certificate good. On every replica, whoever leads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..address import Address
from ..client import Client
from ..errors import ConfigError
from ..log import Log
from ..meta import Key
from ..metrics import Metrics
from ..tls import Certificate, CertificateFiles
from .admission import Answering, handlers_of
from .configuration import checked
from .conversion import Converting
from .declaration import Conversion, Webhook
from .endpoint import Endpoint
from .gauge import WebhookMetrics
from .options import WebhookOptions
from .target import targets_of

if TYPE_CHECKING:
    from .rotation import Rotation


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
        self.options = options
        answering: list[Answering] = [handler for hook in checked(webhooks) for handler in handlers_of(hook)]
        if conversions:
            answering.append(Converting(conversions))
        self.metrics = WebhookMetrics(metrics, [each.path for each in answering])
        self.rotation: Rotation | None = None
        self.certificate: Certificate
        if options.own_authority:
            self.certificate = Certificate()
            self.rotation = own_authority(
                client,
                self.certificate,
                name=name,
                secret=Key(namespace, options.secret_name(name)),
                hosts=options.all_hosts(name, namespace),
                targets=targets_of(webhooks, conversions, name),
                times=options.times,
            )
            self.metrics.expires(lambda: self.rotation.expires_at_seconds if self.rotation is not None else 0.0)
        else:
            self.certificate = CertificateFiles(Path(options.certificates), Log("webhook"))
        where = Address(options.host, options.port)
        self.endpoint = Endpoint(f"{options.host}:{options.port}", where, answering, self.certificate, self.metrics)
        self.stopping = False

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


def own_authority(client: Client, certificate: Certificate, **about: Any) -> Rotation:
    """A CA of our own, where what signs is installed: Python's own library cannot."""
    try:
        from .rotation import Rotation
    except ImportError as error:
        raise ConfigError(
            "a CA of our own for webhooks needs the package cryptography: install kubewright[tls], "
            "or give a directory with tls.crt and tls.key (-webhook-cert-dir)"
        ) from error
    return Rotation(client, certificate, **about)
