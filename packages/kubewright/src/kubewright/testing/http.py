"""Ways into a cluster for tests: kubeconfig files, and plain HTTPS calls that share nothing with the code under test."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from .ca import KeyPair, write_private_file

_TOO_MANY_REQUESTS = 429
RETRY_TIMEOUT_SECONDS, RETRY_INTERVAL_SECONDS = 20.0, 0.1


class HttpError(Exception):
    """The server answered with an error: its code and its words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status}: {words}")
        self.status = status


class HttpClient:
    """One connection on which calls follow each other; opens at the first call, and again when the server closed it."""

    def __init__(
        self, url: str, tls: ssl.SSLContext | None = None, timeout_seconds: float = 10.0
    ) -> None:
        where = urlsplit(url)
        host, port = where.hostname or "", where.port
        self.connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(host, port, timeout=timeout_seconds, context=tls)
            if tls
            else http.client.HTTPConnection(host, port, timeout=timeout_seconds)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.connection.close()

    def call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """One call with a JSON body; returns the decoded answer, or the text where it is not JSON."""
        told = {"Content-Type": "application/json", "Accept": "application/json", **(headers or {})}
        until = time.monotonic() + RETRY_TIMEOUT_SECONDS
        while True:
            self.connection.request(method, path, None if body is None else json.dumps(body), told)
            response = self.connection.getresponse()
            text = response.read().decode()
            if response.status != _TOO_MANY_REQUESTS or time.monotonic() > until:
                break
            # Just after its start, and after a change of a CRD, the API server asks for patience while it fills its caches.
            time.sleep(RETRY_INTERVAL_SECONDS)
        if response.status >= 400:
            raise HttpError(response.status, text)
        return json.loads(text) if "json" in response.headers.get("Content-Type", "") else text


def create_tls_context(
    authority: bytes, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """A client's TLS settings: trusts this CA only, and shows a certificate where one is given."""
    context = ssl.create_default_context(cadata=authority.decode())
    if certificate:
        context.load_cert_chain(certificate, key)
    return context


def write_kubeconfig(
    path: Path, server: str, authority: bytes, user: str, credential: KeyPair | str
) -> Path:
    """Write a kubeconfig with one cluster and one user, who has a certificate or a token."""
    known = (
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
                "cluster": {
                    "server": server,
                    "certificate-authority-data": encode_base64(authority),
                },
            }
        ],
        "users": [{"name": user, "user": known}],
        "contexts": [
            {"name": "test", "context": {"cluster": "test", "user": user, "namespace": "default"}}
        ],
        "current-context": "test",
    }
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    write_private_file(beside, json.dumps(config, indent=2).encode())
    return beside.replace(path)


def encode_base64(content: bytes) -> str:
    """The content in base64, as kubeconfig files hold it."""
    return base64.b64encode(content).decode()
