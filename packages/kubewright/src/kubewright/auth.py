"""Who we are, on the wire and up to date: an Authorization header and a TLS context that follow rotating files and exec plugins.

What can change is looked at again when it is due, never on every call; one look at a time, shared by all who wait for it.
A look that fails keeps what we had: the old credential may still be good, and whether it is, the server decides.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import math
import os
import re
import signal
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from .errors import ConfigError, redact
from .kubeconfig import Connection, ExecPlugin, Identity, is_certificate, is_encrypted
from .kubeconfig_file import KubeconfigLocation, read_file

_FILE_RELOAD_SECONDS = 60.0  # client-go's figure for token files; the kubelet renews a token with a fifth of its life left
_EXPIRY_LEEWAY_SECONDS = 10.0  # a token has to outlive the request that carries it
_MIN_PLUGIN_INTERVAL_SECONDS = 1.0  # between two runs of a plugin whose credentials arrive expired, which is what a wrong clock looks like
PLUGIN_TIMEOUT_SECONDS = 60.0
TMPFS_DIRECTORY = (
    "/dev/shm"  # no disk behind it, and writable in a Pod whose root file system is read-only
)

log = logging.getLogger("kubewright.auth")


@dataclass(frozen=True)
class Credential:
    """What one look gave, and for how long it need not be repeated."""

    authorization: str = field(default="", repr=False)
    certificate_pem: bytes = field(default=b"", repr=False)
    key_pem: bytes = field(default=b"", repr=False)
    reload_after_seconds: float = field(default=math.inf, compare=False)


class Credentials:
    """The live credentials of one connection; any number of transports may share them."""

    def __init__(
        self,
        connection: Connection,
        clock: Callable[[], float] = time.monotonic,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.connection = connection
        self.clock = clock
        self.environ = environ  # what an exec plugin inherits
        self.credential: Credential | None = None
        self.context: ssl.SSLContext | None = None
        self.reload_at = -math.inf
        self.reload_task: asyncio.Task[bool] | None = None

    async def headers(self) -> dict[str, str]:
        """The Authorization header, {} for none. No I/O and no waiting unless a look is due."""
        credential = await self._current_credential()
        return {"Authorization": credential.authorization} if credential.authorization else {}

    async def ssl_context(self) -> ssl.SSLContext | None:
        """The TLS context, None for http://. The same object until a certificate changes, and as cheap to ask for as `headers`."""
        await self._current_credential()
        return self.context

    async def refresh(self, refused: Mapping[str, str] | None = None) -> bool:
        """Look again now, after a 401; True if something changed, so that the request is worth one more try.

        With the `refused` headers a latecomer learns that others have renewed them meanwhile, without another look.
        """
        if refused is not None and refused.get("Authorization", "") != (await self.headers()).get(
            "Authorization", ""
        ):
            return True
        return await self._join_reload()

    async def close(self) -> None:
        """End a look in progress, and the plugin that it may have started."""
        if self.reload_task is not None:
            self.reload_task.cancel()
            await asyncio.wait([self.reload_task])

    async def _current_credential(self) -> Credential:
        """What we know, looked up first if that is due."""
        if self.credential is None or self.clock() >= self.reload_at:
            await self._join_reload()
        assert self.credential is not None, "a first look that fails raises"
        return self.credential

    async def _join_reload(self) -> bool:
        """Join the look in progress, or start one. It outlives a caller that is cancelled, because others wait for it."""
        if self.reload_task is None:
            self.reload_task = asyncio.create_task(self.reload(), name="kubewright: credentials")
            self.reload_task.add_done_callback(self._on_reload_done)
        return await asyncio.shield(self.reload_task)

    def _on_reload_done(self, flight: asyncio.Task[bool]) -> None:
        """Make room for the next look; an error is taken note of, since every caller may be gone."""
        self.reload_task = None
        if not flight.cancelled():
            flight.exception()

    async def reload(self) -> bool:
        """Take over what the sources say now, header and certificate together; True if it is new."""
        try:
            credential = await self._fetch_credential()
            context = await self._tls_context_for(credential)
        except ConfigError as error:
            if self.credential is None:
                raise
            self.reload_at = self.clock() + _FILE_RELOAD_SECONDS
            log.warning("The credentials could not be renewed, the old ones stay in use: %s", error)
            return False
        changed = credential != self.credential
        self.credential, self.context = credential, context
        self.reload_at = self.clock() + credential.reload_after_seconds
        return changed

    async def _fetch_credential(self) -> Credential:
        """What the sources say; a token or password in the kubeconfig comes before a plugin, as in client-go."""
        identity = self.connection.identity
        found = await asyncio.to_thread(_read_credential, identity)
        if identity.exec_plugin is None or found.authorization:
            return found
        environ = {**self.environ, **_build_exec_environment(self.connection, identity.exec_plugin)}
        output = await _run_plugin(identity.exec_plugin, identity.location, environ)
        made = _parse_exec_credential(identity.exec_plugin, identity.location, output)
        return (
            made
            if made.certificate_pem
            else replace(made, certificate_pem=found.certificate_pem, key_pem=found.key_pem)
        )

    async def _tls_context_for(self, credential: Credential) -> ssl.SSLContext | None:
        """The context that presents this certificate: the one we have, if it does."""
        old = self.credential
        if old and (old.certificate_pem, old.key_pem) == (
            credential.certificate_pem,
            credential.key_pem,
        ):
            return self.context
        return (
            await asyncio.to_thread(_build_tls_context, self.connection, credential)
            if is_encrypted(self.connection.server)
            else None
        )


def _read_credential(identity: Identity) -> Credential:
    """What the kubeconfig and the files that it names say; blocks."""
    place, rotates = (
        identity.location,
        identity.token_file or identity.client_cert_file or identity.client_key_file,
    )
    return Credential(
        authorization=_authorization_header(identity),
        certificate_pem=identity.client_cert_pem
        or _read_named_file(place, "client-certificate", identity.client_cert_file),
        key_pem=identity.client_key_pem
        or _read_named_file(place, "client-key", identity.client_key_file),
        reload_after_seconds=_FILE_RELOAD_SECONDS if rotates else math.inf,
    )


def _read_named_file(place: KubeconfigLocation, key: str, file: str) -> bytes:
    """The file's content, nothing where no file is named."""
    return read_file(place, key, file) if file else b""


def _authorization_header(identity: Identity) -> str:
    """The header for the token or password of the identity; blocks, if it is in a file."""
    if identity.token_file:
        return _bearer_header(
            identity.location,
            "tokenFile",
            _read_named_file(identity.location, "tokenFile", identity.token_file).decode("latin-1"),
        )
    if identity.token:
        return _bearer_header(identity.location, "token", identity.token)
    if identity.username:
        return (
            "Basic "
            + base64.b64encode(f"{identity.username}:{identity.password}".encode()).decode()
        )
    return ""


def _bearer_header(place: KubeconfigLocation, key: str, token: str) -> str:
    """The header for a token; one that no header can carry would end in an error that quotes it."""
    if not re.fullmatch(r"[\x21-\x7e]+", token.strip()):
        raise place.error(
            key,
            "the value is no token: it is empty, or holds spaces, line breaks or letters beyond ASCII",
        )
    return "Bearer " + token.strip()


def _build_tls_context(connection: Connection, credential: Credential) -> ssl.SSLContext:
    """A context that checks the server's name and chain, always, and presents our certificate if we have one; blocks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # As Go does, and so as every kubeconfig expects: an intermediate may be the anchor. RFC 5280 to the letter
    # (VERIFY_X509_STRICT, in Python's default context since 3.13) would refuse the certificates of many clusters.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    if connection.ca_pem is None:
        context.load_default_certs()
    elif not is_certificate(connection.ca_pem):
        raise ConfigError(
            f"The certificate authority of {connection.source or connection.server} is not a PEM certificate."
        )
    else:
        context.load_verify_locations(cadata=connection.ca_pem.decode("ascii", "ignore"))
    if credential.certificate_pem:
        _load_client_certificate(context, connection.identity, credential)
    return context


def _load_client_certificate(
    context: ssl.SSLContext, identity: Identity, credential: Credential
) -> None:
    """Give our certificate to the context, or say which of its two halves is wrong."""
    certificate_key, private_key = _certificate_entry_keys(identity)
    if not is_certificate(credential.certificate_pem):
        raise identity.location.error(
            certificate_key,
            "the value does not hold a PEM certificate (-----BEGIN CERTIFICATE-----)",
        )
    try:
        with _temporary_certificate_files(credential) as (certificate, key):
            context.load_cert_chain(
                certificate, key, password=b""
            )  # without a password OpenSSL would ask on the terminal
    except ssl.SSLError:
        why = "the value does not hold a PEM private key without a passphrase, or the key does not belong to the certificate"
        raise identity.location.error(private_key, why) from None
    except OSError as error:
        raise ConfigError(
            f"Python reads client certificates from files only, and there is no folder for one: {error}. Set TMPDIR."
        ) from error


def _certificate_entry_keys(identity: Identity) -> tuple[str, str]:
    """Which keys of the user's entry the certificate and its key came from."""
    if not identity.client_cert_pem and not identity.client_cert_file:
        return "exec", "exec"
    return (
        "client-certificate-data" if identity.client_cert_pem else "client-certificate",
        "client-key-data" if identity.client_key_pem else "client-key",
    )


@contextmanager
def _temporary_certificate_files(credential: Credential) -> Iterator[tuple[Path, Path]]:
    """Certificate and key as files for our eyes only, for as long as OpenSSL needs to read them."""
    folder = TMPFS_DIRECTORY if os.access(TMPFS_DIRECTORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="kubewright-", dir=folder) as private:
        certificate, key = Path(private, "certificate.pem"), Path(private, "key.pem")
        for path, content in (certificate, credential.certificate_pem), (key, credential.key_pem):
            path.touch(mode=0o600)
            path.write_bytes(content)
        yield certificate, key


class ExecStatus(Struct, frozen=True, rename="camel"):
    """`ExecCredential.status`."""

    expiration_timestamp: Annotated[datetime, Meta(tz=True)] | None = None
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class ExecCredential(Struct, frozen=True, rename="camel"):
    """What a plugin prints."""

    api_version: str = ""
    kind: str = ""
    status: ExecStatus | None = None


def _build_exec_environment(connection: Connection, plugin: ExecPlugin) -> dict[str, str]:
    """The plugin's own environment: what the kubeconfig sets, and KUBERNETES_EXEC_INFO."""
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster_info:
        cluster = {
            "server": connection.server,
            "tls-server-name": connection.tls_server_name,
            "certificate-authority-data": base64.b64encode(connection.ca_pem or b"").decode(),
            "proxy-url": connection.proxy_url,
            "config": plugin.cluster_config,
        }
        spec["cluster"] = {key: value for key, value in cluster.items() if value}
    info = msgspec.json.encode(
        {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    )
    return {**plugin.env, "KUBERNETES_EXEC_INFO": info.decode()}


async def _run_plugin(
    plugin: ExecPlugin, place: KubeconfigLocation, environ: Mapping[str, str]
) -> bytes:
    """What the plugin prints. Its own session and no stdin, so that it cannot ask anybody; stopped with its children at the deadline."""
    process = await _start_plugin(plugin, place, environ)
    try:
        async with asyncio.timeout(PLUGIN_TIMEOUT_SECONDS):
            output, complaint = await _wait_for_plugin(process)
    except TimeoutError:
        raise _plugin_error(
            plugin, place, f"did not answer in {PLUGIN_TIMEOUT_SECONDS:g} s"
        ) from None
    if process.returncode:
        said = redact(complaint.decode(errors="replace").strip()) or "nothing"
        raise _plugin_error(plugin, place, f"ended with code {process.returncode} and said: {said}")
    return output


async def _start_plugin(
    plugin: ExecPlugin, place: KubeconfigLocation, environ: Mapping[str, str]
) -> asyncio.subprocess.Process:
    """The running plugin."""
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env=environ,
            start_new_session=True,
        )
    except FileNotFoundError:
        hint = plugin.install_hint.strip() or "Install it, or correct the command or PATH."
        raise _plugin_error(plugin, place, f"was not found. {hint}") from None
    except (OSError, ValueError) as error:
        raise _plugin_error(
            plugin,
            place,
            f"could not be started: {getattr(error, 'strerror', None) or 'an argument holds a NUL'}",
        ) from None


async def _wait_for_plugin(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """What the plugin wrote, once it and all that hold its pipes have ended; cancelling this ends them."""
    try:
        return await process.communicate()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise


def _plugin_error(plugin: ExecPlugin, place: KubeconfigLocation, why: str) -> ConfigError:
    """The error of a plugin, named by its command; arguments and output may hold secrets."""
    return place.error("exec", f'the credential plugin "{plugin.command}" {why}')


def _parse_exec_credential(
    plugin: ExecPlugin, place: KubeconfigLocation, output: bytes
) -> Credential:
    """The credential in a plugin's output, checked as client-go does."""
    try:
        answer = msgspec.json.decode(output, type=ExecCredential)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _plugin_error(
            plugin, place, f"printed something else than an ExecCredential in JSON: {error}"
        ) from None
    if (answer.kind, answer.api_version) != ("ExecCredential", plugin.api_version):
        raise _plugin_error(
            plugin,
            place,
            f"did not print an ExecCredential of {plugin.api_version}, the version that user.exec.apiVersion asks for",
        )
    status = answer.status or ExecStatus()
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise _plugin_error(
            plugin, place, "printed a certificate without its key, or a key without its certificate"
        )
    if not status.token and not status.client_certificate_data:
        raise _plugin_error(
            plugin,
            place,
            "printed neither a token nor a certificate; does its login have to be renewed?",
        )
    return Credential(
        authorization=_bearer_header(place, "exec", status.token) if status.token else "",
        certificate_pem=(status.client_certificate_data or "").encode(),
        key_pem=(status.client_key_data or "").encode(),
        reload_after_seconds=_seconds_until_reload(status.expiration_timestamp),
    )


def _seconds_until_reload(expires: datetime | None) -> float:
    """For how long a credential is used; without an expiry until the server refuses it."""
    if expires is None:
        return math.inf
    return max(
        (expires - datetime.now(UTC)).total_seconds() - _EXPIRY_LEEWAY_SECONDS,
        _MIN_PLUGIN_INTERVAL_SECONDS,
    )
