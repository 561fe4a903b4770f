"""Builders of credentials, a fake clock, and exec plugins that print what a test needs."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path
from typing import Any

from kubewright.api_credentials import ApiCredentials
from kubewright.kubeconfig import Connection, ExecPlugin, Identity
from kubewright.kubeconfig_file import KubeconfigLocation
from kubewright.testing.ca import CertificateAuthority

SECRET = "s3cr3t-never-shown"
TEST_CA = CertificateAuthority("test")
USER_LOCATION = KubeconfigLocation("/etc/config", "users[name=me].user")
EXEC_API_VERSION = "client.authentication.k8s.io/v1"


class FakeClock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def make_credentials(
    clock: FakeClock | None = None,
    *,
    server: str = "https://host",
    ca_pem: bytes | None = TEST_CA.certificate,
    **identity: Any,
) -> ApiCredentials:
    connection = Connection(
        server=server, ca_pem=ca_pem, identity=Identity(location=USER_LOCATION, **identity)
    )
    return ApiCredentials(connection, clock or FakeClock())


async def read_token(credentials: ApiCredentials) -> str:
    return (await credentials.headers())["Authorization"].removeprefix("Bearer ")


async def tls_context(credentials: ApiCredentials) -> ssl.SSLContext | None:
    await credentials.headers()
    return credentials.context


def write_plugin(folder: Path, body: str) -> str:
    """Write a plugin that counts its runs in the file `runs`."""
    script = folder / "plugin"
    head = "import json, os, sys, time, pathlib\n" + f"folder = pathlib.Path({str(folder)!r})\n"
    count = (
        "runs = folder / 'runs'\nwith runs.open('a') as file: file.write('x')\n"
        "run = len(runs.read_text())\n"
    )
    script.write_text(f"#!{sys.executable}\n{head}{count}{body}\n")
    script.chmod(0o700)
    return str(script)


def exec_credential_script(
    status: str, version: str = EXEC_API_VERSION, kind: str = "ExecCredential"
) -> str:
    return f"print(json.dumps({{'apiVersion': {version!r}, 'kind': {kind!r}, 'status': {status}}}))"


def make_plugin_credentials(
    folder: Path, body: str, clock: FakeClock | None = None, **options: Any
) -> ApiCredentials:
    return make_credentials(
        clock, exec_plugin=ExecPlugin(command=write_plugin(folder, body), **options)
    )
