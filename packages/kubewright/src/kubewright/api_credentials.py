"""Credentials for the API server: an Authorization header and a TLS context that stay current.

Credentials rotate: token and certificate files and the file of the server's CA are replaced, exec
plugins print a new token. They are reloaded when they are due, not at every request. One reload
runs at a time, and all requests that need it wait for it. If a reload fails, the old credential
stays in use: it may still be valid, and the API server decides that.
"""

from __future__ import annotations

import asyncio
import base64
import math
import os
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from .errors import ConfigError
from .exec_plugin import run_plugin
from .kubeconfig import Connection, Identity, is_certificate, is_encrypted
from .kubeconfig_file import KubeconfigLocation, read_file
from .log import Log
from .tls import memory_file

# The interval of client-go. kubelet replaces a token when a fifth of its lifetime is left.
_FILE_RELOAD_SECONDS = 60.0
# A token has to outlive the request that carries it.
_EXPIRY_LEEWAY_SECONDS = 10.0
# Between two runs of a plugin that prints expired credentials, for example if the clock is wrong.
_MIN_PLUGIN_INTERVAL_SECONDS = 1.0


@dataclass(frozen=True)
class _LoadedCredential:
    """The result of one reload, and how long it can be used before the next one."""

    authorization: str = field(default="", repr=False)
    ca_pem: bytes | None = field(default=None, repr=False)
    certificate_pem: bytes = field(default=b"", repr=False)
    key_pem: bytes = field(default=b"", repr=False)
    reload_after_seconds: float = field(default=math.inf, compare=False)


class ApiCredentials:
    """The live credentials of one connection; several transports may share them."""

    def __init__(
        self,
        connection: Connection,
        clock: Callable[[], float] = time.monotonic,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.connection = connection
        self.clock = clock
        self.credential: _LoadedCredential | None = None
        self.cached_headers: dict[str, str] = {}
        """The Authorization header, or {}; current until `valid_until`."""
        self.context: ssl.SSLContext | None = None
        """The TLS context, None for http://. The same object until the certificate changes."""
        self.valid_until = -math.inf
        """The time of `clock` at which the next reload is due."""
        self._environ = environ  # an exec plugin inherits it
        self._reload_task: asyncio.Task[bool] | None = None
        self._log = Log("auth")

    async def headers(self) -> dict[str, str]:
        """The Authorization header, or {}. Waits only if a reload is due.

        `context` is current afterwards: both come from the same reload.
        """
        if self.clock() >= self.valid_until:
            await self._join_reload()
        return dict(self.cached_headers)

    async def refresh(self, rejected: Mapping[str, str] | None = None) -> bool:
        """Reload after a 401. True if the credential changed, so that a retry makes sense.

        With the `rejected` headers, nothing is reloaded if another request has done so since.
        """
        if rejected is not None:
            current = await self.headers()
            if rejected.get("Authorization") != current.get("Authorization"):
                return True
        return await self._join_reload()

    async def close(self) -> None:
        """Cancel a reload in progress, and kill the plugin that it runs."""
        if self._reload_task is not None:
            self._reload_task.cancel()
            await asyncio.wait([self._reload_task])

    async def _join_reload(self) -> bool:
        if self._reload_task is None:
            self._reload_task = asyncio.create_task(self._reload(), name="kubewright: credentials")
            self._reload_task.add_done_callback(self._on_reload_done)
        # Shielded: a caller that is cancelled must not cancel the reload that others wait for.
        return await asyncio.shield(self._reload_task)

    def _on_reload_done(self, task: asyncio.Task[bool]) -> None:
        self._reload_task = None
        if not task.cancelled():
            # Retrieve the exception. If every caller was cancelled, asyncio would log it otherwise.
            task.exception()

    async def _reload(self) -> bool:
        """Read header and certificate together; True if one of them changed."""
        try:
            credential = await self._fetch_credential()
            context = await self._tls_context_for(credential)
        except ConfigError as error:
            if self.credential is None:
                raise
            self.valid_until = self.clock() + _FILE_RELOAD_SECONDS
            self._log.warning("could not reload the credentials, keeping the old ones", error=error)
            return False
        changed = credential != self.credential
        self.credential, self.context = credential, context
        authorization = credential.authorization
        self.cached_headers = {"Authorization": authorization} if authorization else {}
        self.valid_until = self.clock() + credential.reload_after_seconds
        return changed

    async def _fetch_credential(self) -> _LoadedCredential:
        identity = self.connection.identity
        credential = await asyncio.to_thread(_read_credential, self.connection)
        # As in client-go, a token or password of the kubeconfig takes precedence over a plugin.
        if identity.exec_plugin is None or credential.authorization:
            return credential
        status = await run_plugin(self.connection, identity.exec_plugin, self._environ)
        certificate_pem, key_pem = credential.certificate_pem, credential.key_pem
        if status.client_certificate_data:
            certificate_pem = status.client_certificate_data.encode()
            key_pem = (status.client_key_data or "").encode()
        # Without an expiry, a credential is used until the server answers 401.
        seconds = math.inf
        if status.expiration_timestamp is not None:
            remaining = (status.expiration_timestamp - datetime.now(UTC)).total_seconds()
            seconds = max(remaining - _EXPIRY_LEEWAY_SECONDS, _MIN_PLUGIN_INTERVAL_SECONDS)
        token = status.token
        return _LoadedCredential(
            authorization=_bearer_header(identity.location, "exec", token) if token else "",
            ca_pem=credential.ca_pem,
            certificate_pem=certificate_pem,
            key_pem=key_pem,
            reload_after_seconds=seconds,
        )

    async def _tls_context_for(self, credential: _LoadedCredential) -> ssl.SSLContext | None:
        old = self.credential
        # Keep the context, and so the open connections, if only the token changed.
        if (
            old is not None
            and old.ca_pem == credential.ca_pem
            and old.certificate_pem == credential.certificate_pem
            and old.key_pem == credential.key_pem
        ):
            return self.context
        if not is_encrypted(self.connection.server):
            return None
        return await asyncio.to_thread(_build_tls_context, self.connection, credential)


def _read_credential(connection: Connection) -> _LoadedCredential:
    """Read the kubeconfig's own credential and the files that it names; blocks."""
    identity = connection.identity
    location = identity.location

    def read(key: str, file: str) -> bytes:
        return read_file(location, key, file) if file else b""

    authorization = ""
    if identity.token_file:
        token = read("tokenFile", identity.token_file).decode("latin-1")
        authorization = _bearer_header(location, "tokenFile", token)
    elif identity.token:
        authorization = _bearer_header(location, "token", identity.token)
    elif identity.username:
        login = f"{identity.username}:{identity.password}".encode()
        authorization = "Basic " + base64.b64encode(login).decode()
    files = (
        identity.token_file,
        identity.client_cert_file,
        identity.client_key_file,
        connection.ca_file,
    )
    return _LoadedCredential(
        authorization=authorization,
        ca_pem=read_file(location, "certificate-authority", connection.ca_file)
        if connection.ca_file
        else connection.ca_pem,
        certificate_pem=identity.client_cert_pem
        or read("client-certificate", identity.client_cert_file),
        key_pem=identity.client_key_pem or read("client-key", identity.client_key_file),
        reload_after_seconds=_FILE_RELOAD_SECONDS if any(files) else math.inf,
    )


def _bearer_header(location: KubeconfigLocation, key: str, token: str) -> str:
    # Checked here, because the HTTP client would reject the header without naming the key.
    if not re.fullmatch(r"[\x21-\x7e]+", token.strip()):
        raise location.error(
            key,
            "the value is not a token: it is empty, or contains spaces, line breaks "
            "or non-ASCII characters",
        )
    return "Bearer " + token.strip()


def _build_tls_context(connection: Connection, credential: _LoadedCredential) -> ssl.SSLContext:
    """A context that verifies the server and presents the client certificate, if any; blocks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # As in Go, which kubeconfigs are written for: an intermediate may be the trust anchor.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # Python's default since 3.13. It would reject the certificates of many clusters.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    if credential.ca_pem is None:
        context.load_default_certs()
    elif not is_certificate(credential.ca_pem):
        raise ConfigError(
            f"the certificate authority of {connection.source or connection.server} "
            f"({connection.ca_file or 'inline'}) is not a PEM certificate"
        )
    else:
        context.load_verify_locations(cadata=credential.ca_pem.decode("ascii", "ignore"))
    if credential.certificate_pem:
        _load_client_certificate(context, connection.identity, credential)
    return context


def _load_client_certificate(
    context: ssl.SSLContext, identity: Identity, credential: _LoadedCredential
) -> None:
    # The keys of the user's entry that an error points at.
    certificate_key = private_key = "exec"
    if identity.client_cert_pem or identity.client_cert_file:
        certificate_key = (
            "client-certificate-data" if identity.client_cert_pem else "client-certificate"
        )
        private_key = "client-key-data" if identity.client_key_pem else "client-key"
    if not is_certificate(credential.certificate_pem):
        raise identity.location.error(
            certificate_key, "the value is not a PEM certificate (-----BEGIN CERTIFICATE-----)"
        )
    try:
        with (
            memory_file(credential.certificate_pem) as certificate,
            memory_file(credential.key_pem) as key,
        ):
            # Without a password, OpenSSL would prompt on the terminal.
            context.load_cert_chain(certificate, key, password=b"")
    except ssl.SSLError:
        raise identity.location.error(
            private_key,
            "the value is not a PEM private key without a passphrase, "
            "or the key does not belong to the certificate",
        ) from None
