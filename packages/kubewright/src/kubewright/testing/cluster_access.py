"""Access to a cluster for tests, without the code under test: kubeconfig files, HTTPS calls."""

from __future__ import annotations

import base64
import http.client
import json
import os
import select
import ssl
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from ..x509 import KeyPair
from .ca import write_private_file

_TOO_MANY_REQUESTS = 429
_RETRY_TIMEOUT_SECONDS, _RETRY_INTERVAL_SECONDS = 20.0, 0.1


class HttpError(Exception):
    """An error response: its status and its body."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status


class IdleConnections:
    """Connections that are kept for the next clients of a server.

    Tests poll, and a TLS handshake costs several times the CPU time of a call.
    """

    def __init__(self) -> None:
        self._connections: deque[http.client.HTTPConnection] = deque()

    def take(self) -> http.client.HTTPConnection | None:
        # If an idle connection has something to read, the server has closed it.
        while self._connections:
            connection = self._connections.pop()
            poll = select.poll()
            poll.register(connection.sock, select.POLLIN)
            if not poll.poll(0):
                return connection
            connection.close()
        return None

    def add(self, connection: http.client.HTTPConnection) -> None:
        self._connections.append(connection)

    def close(self) -> None:
        while self._connections:
            self._connections.pop().close()


class HttpClient:
    """Sequential calls on one connection, which is opened again after the server closed it.

    With `idle`, the client takes a connection from there, and returns it at the end.
    """

    def __init__(
        self,
        url: str,
        tls: ssl.SSLContext | None = None,
        timeout_seconds: float = 10.0,
        idle: IdleConnections | None = None,
    ) -> None:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        self._idle, self._has_unread_response = idle, False
        self.connection: http.client.HTTPConnection = (idle.take() if idle else None) or (
            http.client.HTTPSConnection(host, port, timeout=timeout_seconds, context=tls)
            if tls
            else http.client.HTTPConnection(host, port, timeout=timeout_seconds)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._idle and self.connection.sock and not self._has_unread_response:
            self._idle.add(self.connection)
        else:
            self.connection.close()

    def call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """Send a JSON body; return the decoded response, or its text if it is not JSON."""
        json_headers = {"Content-Type": "application/json", "Accept": "application/json"}
        all_headers = {**json_headers, **(headers or {})}
        content = None if body is None else json.dumps(body)
        deadline = time.monotonic() + _RETRY_TIMEOUT_SECONDS
        while True:
            self._has_unread_response = True
            self.connection.request(method, path, content, all_headers)
            response = self.connection.getresponse()
            text = response.read().decode()
            self._has_unread_response = False
            if response.status != _TOO_MANY_REQUESTS or time.monotonic() > deadline:
                break
            # After its start, and after a change of a CRD, the API server answers 429 until its
            # caches are filled.
            time.sleep(_RETRY_INTERVAL_SECONDS)
        if response.status >= 400:
            raise HttpError(response.status, text)
        return json.loads(text) if "json" in response.headers.get("Content-Type", "") else text


def create_tls_context(
    ca_pem: bytes, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """TLS settings of a client that trusts only this CA."""
    context = ssl.create_default_context(cadata=ca_pem.decode())
    if certificate:
        context.load_cert_chain(certificate, key)
    return context


def write_kubeconfig(
    path: Path, server: str, ca_pem: bytes, user: str, credential: KeyPair | str
) -> Path:
    """Write a kubeconfig with one cluster and one user; the credential is a key pair or a token."""
    user_entry = (
        {
            "client-certificate-data": encode_base64(credential.certificate),
            "client-key-data": encode_base64(credential.key),
        }
        if isinstance(credential, KeyPair)
        else {"token": credential}
    )
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "test",
                "cluster": {"server": server, "certificate-authority-data": encode_base64(ca_pem)},
            }
        ],
        "users": [{"name": user, "user": user_entry}],
        "contexts": [
            {"name": "test", "context": {"cluster": "test", "user": user, "namespace": "default"}}
        ],
        "current-context": "test",
    }
    # A process that follows the file must never read half of it.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    write_private_file(temporary, json.dumps(config, indent=2).encode())
    return temporary.replace(path)


def encode_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
