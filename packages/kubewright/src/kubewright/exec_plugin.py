"""Runs the exec plugin of a kubeconfig and checks the ExecCredential that it prints.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from .errors import ConfigError, redact
from .kubeconfig import Connection, ExecPlugin
from .kubeconfig_file import KubeconfigLocation

PLUGIN_TIMEOUT_SECONDS = 60.0


class ExecStatus(Struct, frozen=True, rename="camel"):
    """`ExecCredential.status`."""

    expiration_timestamp: Annotated[datetime, Meta(tz=True)] | None = None
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class ExecCredential(Struct, frozen=True, rename="camel"):
    """The object that a plugin prints."""

    api_version: str = ""
    kind: str = ""
    status: ExecStatus | None = None


async def run_plugin(
    connection: Connection, plugin: ExecPlugin, environ: Mapping[str, str]
) -> ExecStatus:
    """Run the plugin and return the credential that it prints; `environ` is what it inherits."""
    location = connection.identity.location
    process = await _start(plugin, location, {**environ, **_plugin_environment(connection, plugin)})
    try:
        async with asyncio.timeout(PLUGIN_TIMEOUT_SECONDS):
            output, error_output = await _wait(process)
    except TimeoutError:
        problem = f"did not finish within {PLUGIN_TIMEOUT_SECONDS:g} s"
        raise _plugin_error(plugin, location, problem) from None
    if process.returncode:
        stderr = redact(error_output.decode(errors="replace").strip()) or "(empty)"
        problem = f"exited with code {process.returncode}. Its stderr: {stderr}"
        raise _plugin_error(plugin, location, problem)
    return _parse_output(plugin, location, output)


def _plugin_environment(connection: Connection, plugin: ExecPlugin) -> dict[str, str]:
    """What is added to the inherited environment: `env` of the kubeconfig, KUBERNETES_EXEC_INFO."""
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
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    return {**plugin.env, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}


async def _start(
    plugin: ExecPlugin, location: KubeconfigLocation, environ: Mapping[str, str]
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            # No stdin: a plugin that prompts must fail, because no user is there to answer.
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environ,
            # Its own process group, so that its children can be killed with it.
            start_new_session=True,
        )
    except FileNotFoundError:
        hint = plugin.install_hint.strip() or "Install it, or correct the command or PATH."
        raise _plugin_error(plugin, location, f"was not found. {hint}") from None
    except (OSError, ValueError) as error:
        # ValueError: an argument contains a NUL. Its text is left out because it quotes arguments.
        reason = getattr(error, "strerror", None) or "an argument contains a NUL character"
        raise _plugin_error(plugin, location, f"could not be started: {reason}") from None


async def _wait(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """Return stdout and stderr. Cancelling it kills the plugin and its children."""
    try:
        return await process.communicate()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise


def _parse_output(plugin: ExecPlugin, location: KubeconfigLocation, output: bytes) -> ExecStatus:
    """Parse the ExecCredential, with the same checks as client-go."""
    try:
        credential = msgspec.json.decode(output, type=ExecCredential)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = f"did not print a valid ExecCredential in JSON: {error}"
        raise _plugin_error(plugin, location, problem) from None
    status = credential.status or ExecStatus()
    problem = ""
    if (credential.kind, credential.api_version) != ("ExecCredential", plugin.api_version):
        problem = (
            f"did not print an ExecCredential of {plugin.api_version}, "
            "which user.exec.apiVersion requires"
        )
    elif bool(status.client_certificate_data) != bool(status.client_key_data):
        problem = "printed a certificate without its key, or a key without its certificate"
    elif not status.token and not status.client_certificate_data:
        problem = "printed neither a token nor a certificate. You may have to log in again."
    if problem:
        raise _plugin_error(plugin, location, problem)
    return status


def _plugin_error(plugin: ExecPlugin, location: KubeconfigLocation, problem: str) -> ConfigError:
    # Only the command is named: arguments and output may hold secrets.
    return location.error("exec", f'the credential plugin "{plugin.command}" {problem}')
