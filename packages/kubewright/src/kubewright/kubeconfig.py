"""How to reach the API server and authenticate to it, as one `Connection`. Reads files only.

The first source that exists is used: --kubeconfig, the files of KUBECONFIG, the Pod's service
account, ~/.kube/config, --master alone. A source that cannot be used is an error that names the
file and the key. It is never skipped, because the next source may be another cluster. This is
stricter than kubectl: TLS is always verified, and settings that have no effect here (impersonation,
auth-provider) are rejected.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from .errors import ConfigError
from .kubeconfig_file import (
    Cluster,
    ExecConfig,
    KubeconfigLocation,
    NamedEntry,
    User,
    decode_base64,
    merge_files,
    read_file,
)

_SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_NO_LOCATION = KubeconfigLocation()


@dataclass(frozen=True)
class ExecPlugin:
    """A command that prints credentials. Its arguments and environment may hold secrets."""

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_version: str = _EXEC_API_VERSIONS[0]
    provide_cluster_info: bool = False
    install_hint: str = ""
    cluster_config: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class Identity:
    """The credentials of the user. Files stay paths, because rotated files are read again."""

    token: str = field(default="", repr=False)
    token_file: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    client_cert_pem: bytes = field(default=b"", repr=False)
    client_key_pem: bytes = field(default=b"", repr=False)
    client_cert_file: str = ""
    client_key_file: str = ""
    exec_plugin: ExecPlugin | None = None
    location: KubeconfigLocation = _NO_LOCATION


_ANONYMOUS = Identity()


@dataclass(frozen=True)
class Connection:
    """One API server: its address, its CA, the credentials, and for messages the `source`."""

    server: str
    identity: Identity = _ANONYMOUS
    ca_pem: bytes | None = field(default=None, repr=False)
    tls_server_name: str = ""
    proxy_url: str = field(default="", repr=False)  # may be http://user:password@proxy
    namespace: str = "default"
    source: str = ""
    ca_file: str = ""
    """The file of `ca_pem`, if it comes from one: it is read again, because it rotates too."""


def load_config(
    kubeconfig: str = "",
    master: str = "",
    context: str = "",
    *,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    service_account: Path = _SERVICE_ACCOUNT_DIRECTORY,
) -> Connection:
    """Load the connection of the first source that exists; the module lists the order.

    It reads files: in an event loop, call it with `asyncio.to_thread`.
    """
    environ = os.environ if environ is None else environ
    home = home or Path(environ.get("HOME", "/"))
    problem = _server_url_problem(master) if master else ""
    if problem:
        raise ConfigError(f"--master {problem}")
    if kubeconfig:
        return _connection_from_files([Path(kubeconfig)], master, context)
    if files := [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]:
        existing = [path for path in files if os.path.exists(path)]
        # Falling back to the next source could end in another cluster.
        if not existing:
            raise ConfigError(
                f"KUBECONFIG names {', '.join(map(str, files))}, which does not exist. "
                "Correct the variable, or unset it to use the default locations."
            )
        return _connection_from_files(existing, master, context)
    in_cluster = _in_cluster_server(environ)
    if in_cluster and not context and os.path.exists(service_account / "token"):
        return _connection_from_service_account(service_account, master or in_cluster)
    if os.path.exists(home / ".kube" / "config"):
        return _connection_from_files([home / ".kube" / "config"], master, context)
    if master and not context:
        return Connection(server=master.rstrip("/"), source="--master")
    raise ConfigError(_no_cluster_message(bool(in_cluster), home, service_account))


def _no_cluster_message(in_pod: bool, home: Path, service_account: Path) -> str:
    pod = (
        f"{service_account / 'token'} is not mounted"
        if in_pod
        else "KUBERNETES_SERVICE_HOST and _PORT are not set"
    )
    return (
        "No Kubernetes cluster is configured. Tried: --kubeconfig (not given), "
        "KUBECONFIG (not set), "
        f"the Pod's service account ({pod}), {home / '.kube' / 'config'} (does not exist). "
        "Outside a cluster, use --kubeconfig=<file>. "
        "In a Pod, do not disable automountServiceAccountToken."
    )


def _in_cluster_server(environ: Mapping[str, str]) -> str:
    # kubelet sets both variables in every container.
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _connection_from_service_account(folder: Path, server: str) -> Connection:
    def read_optional(name: str) -> bytes | None:
        path = folder / name
        return read_file(_NO_LOCATION, "", str(path)) if os.path.exists(path) else None

    # Without ca.crt the system's trust store is used, as in client-go.
    ca_pem = read_optional("ca.crt")
    if ca_pem is not None and not is_certificate(ca_pem):
        raise ConfigError(
            f"{folder / 'ca.crt'} is not a PEM certificate: the volume of the service account "
            "is damaged. Delete the Pod to mount it again."
        )
    namespace = (read_optional("namespace") or b"").decode(errors="replace").strip()
    return Connection(
        server=server.rstrip("/"),
        identity=Identity(token_file=str(folder / "token")) if is_encrypted(server) else _ANONYMOUS,
        ca_pem=ca_pem,
        ca_file=str(folder / "ca.crt") if ca_pem is not None else "",
        namespace=namespace or "default",
        source="the Pod's service account",
    )


def _connection_from_files(files: Sequence[Path], master: str, context: str) -> Connection:
    merged = merge_files(files)
    name, location, selected = merged.select_context(context)
    cluster_location, entry = merged.find_entry("cluster", selected.cluster, location)
    cluster = entry.cluster
    user_location, user = (
        merged.find_entry("user", selected.user, location)
        if selected.user
        else (_NO_LOCATION, NamedEntry(""))
    )
    server = master or _validate_server(cluster_location, cluster)
    return Connection(
        server=server.rstrip("/"),
        # As in kubectl, credentials are never sent over http://.
        identity=_build_identity(user_location, user.user, cluster)
        if is_encrypted(server)
        else _ANONYMOUS,
        ca_pem=_load_ca(cluster_location, cluster),
        ca_file=""
        if cluster.certificate_authority_data
        else cluster_location.resolve_path(cluster.certificate_authority),
        tls_server_name=cluster.tls_server_name,
        proxy_url=_validate_proxy(cluster_location, cluster),
        namespace=selected.namespace or "default",
        source=f'kubeconfig {location.file}, context "{name}"',
    )


def _server_url_problem(url: str) -> str:
    # No message quotes the URL: it may contain a password.
    parts = _split_url(url)
    if parts is None or parts.scheme not in ("http", "https"):
        return "must be a URL such as https://host:port"
    if parts.username is not None or parts.query or parts.fragment:
        return (
            "must be a plain URL, without user:password@, ? or #; "
            "put credentials into the user's entry"
        )
    return ""


def _split_url(url: str) -> SplitResult | None:
    """Split a URL; None if it has no host, an invalid port, or white space."""
    try:
        parts = urlsplit(url)
        return parts if parts.hostname and parts.port != 0 and url.split() == [url] else None
    except ValueError:
        return None


def is_encrypted(server: str) -> bool:
    return urlsplit(server).scheme == "https"


def _validate_server(location: KubeconfigLocation, cluster: Cluster) -> str:
    if not cluster.server:
        raise location.error(
            "server",
            "the value is empty. Set the URL of the API server, for example https://host:6443.",
        )
    if problem := _server_url_problem(cluster.server):
        raise location.error("server", problem)
    return cluster.server


def _validate_proxy(location: KubeconfigLocation, cluster: Cluster) -> str:
    parts = _split_url(cluster.proxy_url)
    scheme = parts.scheme if parts else ""
    if cluster.proxy_url and scheme not in ("http", "https"):
        problem = (
            "SOCKS proxies are not supported"
            if scheme.startswith("socks")
            else "the value is not the URL of a proxy"
        )
        raise location.error(
            "proxy-url", f"{problem}; use a URL that starts with http:// or https://"
        )
    return cluster.proxy_url


def _load_ca(location: KubeconfigLocation, cluster: Cluster) -> bytes | None:
    """The certificates to trust; None for those of the system."""
    if cluster.insecure_skip_tls_verify:
        raise location.error(
            "insecure-skip-tls-verify",
            "TLS is always verified. Remove this setting, and set certificate-authority or "
            "certificate-authority-data instead (and tls-server-name, if the certificate has "
            "another name).",
        )
    if cluster.certificate_authority_data:
        key = "certificate-authority-data"
        pem = decode_base64(location, key, cluster.certificate_authority_data)
    elif cluster.certificate_authority:
        key = "certificate-authority"
        pem = read_file(location, key, location.resolve_path(cluster.certificate_authority))
    else:
        return None
    if not is_certificate(pem):
        raise location.error(
            key, "the value is not a PEM certificate (-----BEGIN CERTIFICATE-----)"
        )
    return pem


def is_certificate(pem: bytes) -> bool:
    """Whether OpenSSL can load at least one certificate, and no damaged one, from this PEM."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
            cadata=pem.decode("ascii", "ignore")
        )
    except (ssl.SSLError, ValueError):
        return False
    return True


def _build_identity(location: KubeconfigLocation, user: User, cluster: Cluster) -> Identity:
    _reject_unsupported(location, user)
    return Identity(
        token=user.token,
        token_file=location.resolve_path(user.token_file),
        username=user.username,
        password=user.password,
        client_cert_pem=decode_base64(
            location, "client-certificate-data", user.client_certificate_data
        ),
        client_key_pem=decode_base64(location, "client-key-data", user.client_key_data),
        client_cert_file=""
        if user.client_certificate_data
        else location.resolve_path(user.client_certificate),
        client_key_file="" if user.client_key_data else location.resolve_path(user.client_key),
        exec_plugin=_build_exec_plugin(
            KubeconfigLocation(location.file, f"{location.key}.exec"), user.exec, cluster
        )
        if user.exec
        else None,
        location=location,
    )


def _reject_unsupported(location: KubeconfigLocation, user: User) -> None:
    # Ignoring one of these settings would send the requests as another user.
    if user.auth_provider is not None:
        raise location.error(
            "auth-provider",
            "Kubernetes has replaced auth providers with exec plugins. "
            "Set user.exec to the plugin of your provider instead.",
        )
    for key, value in (
        ("as", user.as_user),
        ("as-uid", user.as_uid),
        ("as-groups", user.as_groups),
        ("as-user-extra", user.as_user_extra),
    ):
        if value:
            raise location.error(
                key,
                "impersonation is not supported. Use a kubeconfig with credentials of that user.",
            )
    if (user.token or user.token_file) and user.username:
        raise location.error("username", "the entry also has a token. Keep one of the two.")
    has_certificate = bool(user.client_certificate or user.client_certificate_data)
    if has_certificate != bool(user.client_key or user.client_key_data):
        present, missing = "client-key", "client-certificate"
        if has_certificate:
            present, missing = missing, present
        raise location.error(
            missing, f"the entry has a {present} without it. Set {missing} or {missing}-data."
        )


def _build_exec_plugin(
    location: KubeconfigLocation, config: ExecConfig, cluster: Cluster
) -> ExecPlugin:
    if not config.command:
        raise location.error("command", "the value is empty. Set the command of the plugin.")
    if config.api_version not in _EXEC_API_VERSIONS:
        raise location.error(
            "apiVersion",
            f"the value must be {' or '.join(_EXEC_API_VERSIONS)}. "
            "Update the plugin and generate its kubeconfig again.",
        )
    if config.interactive_mode not in ("", "Never", "IfAvailable", "Always"):
        raise location.error("interactiveMode", "the value must be Never or IfAvailable")
    if config.interactive_mode == "Always":
        raise location.error(
            "interactiveMode",
            "Always needs a terminal, and the manager has none. Use Never or IfAvailable.",
        )
    return ExecPlugin(
        command=location.resolve_path(config.command)
        if os.sep in config.command
        else config.command,
        args=config.args,
        env={entry.name: entry.value for entry in config.env},
        api_version=config.api_version,
        provide_cluster_info=config.provide_cluster_info,
        install_hint=config.install_hint,
        cluster_config=next(
            (item.extension for item in cluster.extensions if item.name == _EXEC_EXTENSION), None
        ),
    )
