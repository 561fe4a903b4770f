"""Serving TLS with a certificate that can change while connections are open: from files, made by ourselves, or handed in."""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from .errors import ConfigError
from .log import Log


class ServingCertificate:
    """What is shown to whoever connects: a pair that can be replaced while connections are open."""

    def __init__(self) -> None:
        self.loaded_pem = b""
        self.current_context = _new_server_context()
        self.context = _new_server_context()
        # Handshakes start on `context` and go on with the newest pair; a context under load is never changed.
        self.context.sni_callback = self._on_server_name

    def _on_server_name(
        self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> None:
        """Let this handshake use the newest pair."""
        connection.context = self.current_context

    def load_pem(self, pem: bytes) -> None:
        """Show this certificate (with its chain and key) from now on. It reads and writes files, so call it in a thread."""
        context = _new_server_context()
        with _memory_file(pem) as file:
            context.load_cert_chain(
                file, password=lambda: ""
            )  # without one, OpenSSL would ask the terminal
        self.current_context, self.loaded_pem = context, pem


class CertificateWatcher(ServingCertificate):
    """The pair in a directory, as cert-manager's Secret is mounted; looked at again every few seconds."""

    def __init__(self, directory: Path, log: Log) -> None:
        super().__init__()
        self.directory, self.log = directory, log
        self.problem = ""

    def load(self) -> None:
        """Read the pair if it is new; the old one stays if the new one cannot be used, for example half written."""
        try:
            pem = (
                (self.directory / "tls.crt").read_bytes()
                + b"\n"
                + (self.directory / "tls.key").read_bytes()
            )
            if pem != self.loaded_pem:
                self.load_pem(pem)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"the certificate in {self.directory} cannot be used (tls.crt and tls.key are needed): {error}"
            ) from error

    async def watch(self, seconds: float) -> None:
        """Load a renewed pair, for ever."""
        while True:
            await asyncio.sleep(seconds)
            await self.reload()

    async def reload(self) -> None:
        """Load the pair if it is new, and say what is wrong with it, once."""
        before = self.loaded_pem
        try:
            await asyncio.to_thread(self.load)
        except ConfigError as error:
            if str(error) != self.problem:
                self.log.error(
                    "the old certificate stays in use" if before else "there is no certificate yet",
                    error=error,
                )
            self.problem = str(error)
            return
        self.problem = ""
        if self.loaded_pem != before:
            self.log.info(
                "the certificate was renewed" if before else "the certificate is there",
                directory=str(self.directory),
            )


def _new_server_context() -> ssl.SSLContext:
    """TLS 1.2 or newer, for HTTP/1.1."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    return context


@contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    """A path with this content while needed; not on disk where the system can, since a Pod's disk is often read-only."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("tls")
        try:
            os.write(handle, content)
            yield f"/proc/self/fd/{handle}"
        finally:
            os.close(handle)
        return
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "tls.pem"
        file.write_bytes(content)
        yield str(file)


def generate_self_signed_pem(host: str) -> bytes:
    """A new key and a certificate for it, good for a year."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise ConfigError(
            "serving TLS without a certificate needs the package cryptography, to make one: install kubewright[tls], "
            "or give a directory with tls.crt and tls.key"
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host[:64])])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName(
        [x509.DNSName(each) for each in dict.fromkeys((host, "localhost")) if each.isascii()]
    )
    certificate = (
        x509.CertificateBuilder(
            name,
            name,
            key.public_key(),
            x509.random_serial_number(),
            now - timedelta(hours=1),
            now + timedelta(days=365),
        )
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return certificate.public_bytes(pem) + key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
