"""Serving TLS with a certificate that can change while connections are open.

The certificate comes from a directory, is generated here, or is loaded by the webhooks' CA.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import ConfigError
from .log import Log

if TYPE_CHECKING:
    from .x509 import KeyPair

_SELF_SIGNED_LIFETIME = timedelta(days=365)


class ServingCertificate:
    """The certificate that a server presents, and the CAs that it verifies its clients with.

    Both can be replaced for new handshakes, from any thread.
    """

    def __init__(self) -> None:
        self.loaded_pem = b""
        self.client_ca_pem = b""
        # None without a certificate, or without the package cryptography, which reads it.
        self.expires_at: datetime | None = None
        self._lock = threading.Lock()
        self.current_context = _new_server_context()
        # The server listens with `context`, which never changes: OpenSSL does not allow a context
        # to be changed while handshakes use it. The SNI callback switches each handshake to the
        # context of the newest certificate.
        self.context = _new_server_context()
        self.context.sni_callback = self._on_server_name

    def _on_server_name(
        self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> None:
        connection.context = self.current_context

    def load_pem(self, pem: bytes) -> None:
        """Present this certificate (with its chain and key) from now on.

        Reads and writes files: call it in a thread.
        """
        with self._lock:
            self._replace_context(pem, self.client_ca_pem)

    def load_client_ca(self, pem: bytes) -> None:
        """Request client certificates, and verify them with these CAs from now on.

        A client without a certificate can still connect: check `peercert` of the connection. Call
        it in a thread, and before the server listens for the first time.
        """
        with self._lock:
            self._replace_context(self.loaded_pem, pem)
            if self.context.verify_mode != ssl.CERT_OPTIONAL:
                # A handshake takes the mode from the first context, and the CAs from the second.
                _request_client_certificates(self.context)

    def _replace_context(self, pem: bytes, client_ca_pem: bytes) -> None:
        context = _new_server_context()
        if client_ca_pem:
            _request_client_certificates(context)
            context.load_verify_locations(cadata=client_ca_pem.decode("ascii", "ignore"))
        if pem:
            with memory_file(pem) as file:
                # Without a password callback, OpenSSL would prompt on the terminal.
                context.load_cert_chain(file, password=lambda: "")
            self.expires_at = _read_expiry(pem)
        self.current_context, self.loaded_pem, self.client_ca_pem = context, pem, client_ca_pem


class CertificateWatcher(ServingCertificate):
    """The certificate in a directory, as a cert-manager Secret is mounted; reloaded on change."""

    def __init__(self, directory: Path, log: Log) -> None:
        super().__init__()
        self._directory, self._log = directory, log
        self._problem = ""

    def load(self) -> None:
        """Load the files if they changed. The previous certificate stays if they are unusable."""
        try:
            certificate = (self._directory / "tls.crt").read_bytes()
            pem = certificate + b"\n" + (self._directory / "tls.key").read_bytes()
            if pem != self.loaded_pem:
                self.load_pem(pem)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"cannot use the certificate in {self._directory} "
                f"(it needs the files tls.crt and tls.key): {error}"
            ) from error

    async def watch(self, seconds: float) -> None:
        """Reload the certificate at this interval, until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            await self.reload()

    async def reload(self) -> None:
        """Load the files if they changed; log a problem once, not at every interval."""
        previous_pem = self.loaded_pem
        try:
            await asyncio.to_thread(self.load)
        except ConfigError as error:
            # Expected for a moment during a renewal: the two files are not replaced together.
            if str(error) != self._problem:
                self._log.error(
                    "cannot load the new certificate, keeping the old one"
                    if previous_pem
                    else "there is no usable certificate yet",
                    error=error,
                )
            self._problem = str(error)
            return
        self._problem = ""
        if self.loaded_pem != previous_pem:
            self._log.info(
                "renewed the certificate" if previous_pem else "loaded the certificate",
                directory=str(self._directory),
            )


def _utc_now() -> datetime:
    return datetime.now(UTC)


class SelfSignedCertificate(ServingCertificate):
    """A certificate for this host without a CA, in memory only; renewed while it is served."""

    def __init__(self, host: str, log: Log, clock: Callable[[], datetime] = _utc_now) -> None:
        super().__init__()
        self._host, self._log, self._clock = host, log, clock
        self._pair: KeyPair | None = None

    def load(self) -> None:
        """Create the certificate, or replace it if its renewal is due."""
        now = self._clock()
        pair = self._pair
        # Before `issued_at`: the clock was wrong when the certificate was created.
        if pair is not None and pair.issued_at <= now and not pair.is_renewal_due(now):
            return
        try:
            # Imported here because cryptography is an optional dependency.
            from .x509 import create_self_signed
        except ImportError as error:
            raise ConfigError(
                "serving TLS without a certificate needs the package cryptography to generate one: "
                "install kubewright[tls], or provide a directory with tls.crt and tls.key"
            ) from error
        pair = create_self_signed(self._host, now, _SELF_SIGNED_LIFETIME)
        self.load_pem(pair.certificate + pair.key)
        self._pair = pair
        self._log.info("serving a new self-signed certificate", expires=pair.expires_at)

    async def watch(self, seconds: float) -> None:
        """Renew the certificate when that is due, checked at this interval, until cancelled."""
        problem = ""
        while True:
            await asyncio.sleep(seconds)
            try:
                await asyncio.to_thread(self.load)
                problem = ""
            except OSError as error:
                # Such as too many open files. Without a retry, the certificate would expire.
                if str(error) != problem:
                    self._log.error("cannot renew the certificate, retrying", error=error)
                problem = str(error)


def _read_expiry(pem: bytes) -> datetime | None:
    try:
        # Imported here because cryptography is an optional dependency.
        from .x509 import read_expiry
    except ImportError:
        return None
    return read_expiry(pem)


def _new_server_context() -> ssl.SSLContext:
    # Python's default for servers: TLS 1.2 or newer.
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _request_client_certificates(context: ssl.SSLContext) -> None:
    context.verify_mode = ssl.CERT_OPTIONAL
    # Python's default since 3.13. It would reject the certificates of many clusters.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # A resumed session would skip the verification with the CAs of now.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0


@contextmanager
def memory_file(content: bytes) -> Iterator[str]:
    """A path with this content, without a file on disk where the system allows it.

    The root file system of a Pod is often read-only, and a private key should not be written to it.
    """
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("tls")
        try:
            os.write(handle, content)
            yield f"/proc/self/fd/{handle}"
        finally:
            os.close(handle)
        return
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "tls.pem"
        file.touch(mode=0o600)
        file.write_bytes(content)
        yield str(file)
