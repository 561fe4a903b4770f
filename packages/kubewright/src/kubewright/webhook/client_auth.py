"""Verifies that the client of the webhook server is an API server, by its client certificate.

This is optional. By default kube-apiserver sends no client certificate to webhooks; its
AdmissionConfiguration can name one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..errors import ConfigError
from ..kubeconfig import is_certificate
from ..log import Log
from ..tls import ServingCertificate

_FLAG = "-webhook-client-ca-file"
_NAMES_FLAG = "-webhook-client-names"
# Any Pod that reaches the port can cause a rejection, and must not fill the log.
_LOG_INTERVAL_SECONDS = 60.0


class ClientRejected(Exception):
    """The client may not send reviews; the message is for the user of the API server."""


class ClientAuthenticator:
    """Accepts certificates that a CA in a file has signed: all of them, or those of some names."""

    def __init__(
        self, ca_file: Path, names: Sequence[str], certificate: ServingCertificate, log: Log
    ) -> None:
        self._ca_file, self._names = ca_file, frozenset(names)
        self._certificate, self._log = certificate, log
        self._problem = ""
        self._log_after = 0.0

    def load(self) -> None:
        """Load the file if it changed. The previous CAs stay if it is unusable."""
        try:
            pem = self._ca_file.read_bytes()
            usable = is_certificate(pem)
        except OSError as error:
            raise ConfigError(
                f"cannot read the CA of webhook clients ({_FLAG}): {error}"
            ) from error
        if not usable:
            raise ConfigError(
                f"{self._ca_file} is not a PEM certificate ({_FLAG}). It must hold the CA that "
                "signed the client certificate of the API server"
            )
        if pem != self._certificate.client_ca_pem:
            self._certificate.load_client_ca(pem)
            self._log.info("verifying the clients of webhooks", ca_file=str(self._ca_file))

    async def watch(self, seconds: float) -> None:
        """Load the file at this interval, until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await asyncio.to_thread(self.load)
                self._problem = ""
            # An SSLError is an OSError. One that ended this task would end the manager.
            except (ConfigError, OSError) as error:
                if str(error) != self._problem:
                    self._log.error("keeping the old CA of webhook clients", error=error)
                self._problem = str(error)

    def check(self, transport: asyncio.BaseTransport | None) -> None:
        """Raise ClientRejected, unless the connection has the certificate of an API server."""
        # An unknown CA or an expired certificate fails the handshake, so that the certificate
        # here is a valid one, or none.
        peer = transport.get_extra_info("peercert") if transport is not None else None
        if not peer:
            self._reject(
                "Forbidden: this server requires the client certificate of the API server "
                f"({_FLAG}), and the client sent none. Name one in the AdmissionConfiguration of "
                "the API server",
                transport,
            )
        if self._names and (name := _common_name(peer)) not in self._names:
            self._reject(
                f'Forbidden: the client certificate is that of "{name}", which {_NAMES_FLAG} '
                "does not contain",
                transport,
            )

    def _reject(self, message: str, transport: asyncio.BaseTransport | None) -> NoReturn:
        now = asyncio.get_running_loop().time()
        if now >= self._log_after:
            self._log_after = now + _LOG_INTERVAL_SECONDS
            address = transport.get_extra_info("peername") if transport is not None else None
            self._log.warning("rejected a webhook client", client=str(address), why=message)
        raise ClientRejected(message)


def _common_name(certificate: Mapping[str, Any]) -> str:
    """The CN of a certificate, as `SSLSocket.getpeercert` returns it."""
    attributes = (attribute for part in certificate.get("subject", ()) for attribute in part)
    return next((value for name, value in attributes if name == "commonName"), "")
