"""Where the API server is and who we are to it, as one `Connection`; reads files, never the network.

The first of these that is there: --kubeconfig, the files of KUBECONFIG, the Pod's service account, ~/.kube/config,
--master alone. What is found and cannot be used is an error that names the file and the key; it is never skipped, because
the next in the list may be another cluster. Where kubectl and we differ, we are the stricter: TLS is always verified,
and what we could only ignore (impersonation, auth-provider) is refused.
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
    """A command that prints credentials. Arguments and environment may hold secrets and stay out of the repr."""

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_version: str = _EXEC_API_VERSIONS[0]
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False
    install_hint: str = ""
    cluster_config: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class Identity:
    """Who we say we are. Files stay paths, because they are read again when they rotate."""

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
    """One API server, how to trust it, who we are to it, and for people where we know it from."""

    server: str
    identity: Identity = _ANONYMOUS
    ca_pem: bytes | None = field(default=None, repr=False)
    tls_server_name: str = ""
    proxy_url: str = field(default="", repr=False)  # may be http://user:password@proxy
    namespace: str = "default"
    source: str = ""


def load_config(
    kubeconfig: str = "",
    master: str = "",
    context: str = "",
    *,
    environ: Mapping[str, str],
    home: Path,
    service_account: Path = _SERVICE_ACCOUNT_DIRECTORY,
) -> Connection:
    """The connection that these flags, this environment and these files describe; see the module for the order."""
    if fault := _server_url_problem(master) if master else "":
        raise ConfigError(f"--master {fault}")
    if kubeconfig:
        return _connection_from_files([Path(kubeconfig)], master, context)
    if listed := [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]:
        return _connection_from_files(_select_existing(listed), master, context)
    in_cluster = _in_cluster_server(environ)
    if in_cluster and not context and os.path.exists(service_account / "token"):
        return _connection_from_service_account(service_account, master or in_cluster)
    if os.path.exists(home / ".kube" / "config"):
        return _connection_from_files([home / ".kube" / "config"], master, context)
    if master and not context:
        return Connection(server=master.rstrip("/"), source="--master")
    raise ConfigError(_no_cluster_message(bool(in_cluster), home, service_account))


def _select_existing(listed: Sequence[Path]) -> list[Path]:
    """Those of KUBECONFIG's files that exist. If none does it is an error: going on could end in another cluster."""
    found = [path for path in listed if os.path.exists(path)]
    if not found:
        names = ", ".join(map(str, listed))
        raise ConfigError(
            f"KUBECONFIG names {names}, which does not exist. Correct the variable, or unset it to use the default places."
        )
    return found


def _no_cluster_message(in_pod: bool, home: Path, service_account: Path) -> str:
    """What was tried and what to do, for somebody who starts this for the first time."""
    pod = (
        f"{service_account / 'token'} is not mounted"
        if in_pod
        else "KUBERNETES_SERVICE_HOST and _PORT are not set"
    )
    return (
        "No Kubernetes cluster is configured. Tried: --kubeconfig (not given), KUBECONFIG (not set), "
        f"the Pod's service account ({pod}), {home / '.kube' / 'config'} (does not exist). "
        "Outside a cluster give --kubeconfig=<file>; in a Pod do not switch automountServiceAccountToken off."
    )


def _in_cluster_server(environ: Mapping[str, str]) -> str:
    """The API server as Kubernetes tells its Pods, or "" outside one."""
    host, port = (
        environ.get("KUBERNETES_SERVICE_HOST", ""),
        environ.get("KUBERNETES_SERVICE_PORT", ""),
    )
    if not host or not port:
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _connection_from_service_account(folder: Path, server: str) -> Connection:
    """The connection of a Pod; without a ca.crt the system's trust store counts, as in client-go."""
    ca_pem = _read_optional_file(folder / "ca.crt")
    if ca_pem is not None and not is_certificate(ca_pem):
        raise ConfigError(
            f"{folder / 'ca.crt'} holds no PEM certificate: the service account's volume is damaged. Delete the Pod to mount it anew."
        )
    return Connection(
        server=server.rstrip("/"),
        identity=Identity(token_file=str(folder / "token")) if is_encrypted(server) else _ANONYMOUS,
        ca_pem=ca_pem,
        namespace=(_read_optional_file(folder / "namespace") or b"")
        .decode(errors="replace")
        .strip()
        or "default",
        source="the Pod's service account",
    )


def _read_optional_file(file: Path) -> bytes | None:
    """What is in the file, None if there is none."""
    return read_file(_NO_LOCATION, "", str(file)) if os.path.exists(file) else None


def _connection_from_files(files: Sequence[Path], master: str, context: str) -> Connection:
    """The connection of one context of these files. Credentials never go to an http:// server, as in kubectl."""
    merged = merge_files(files)
    name, place, chosen = merged.select_context(context)
    cluster_place, cluster = merged.find_entry("cluster", chosen.cluster, place)
    user_place, user = (
        merged.find_entry("user", chosen.user, place)
        if chosen.user
        else (_NO_LOCATION, NamedEntry(""))
    )
    server = master or _validate_server(cluster_place, cluster.cluster)
    return Connection(
        server=server.rstrip("/"),
        identity=_build_identity(user_place, user.user, cluster.cluster)
        if is_encrypted(server)
        else _ANONYMOUS,
        ca_pem=_load_ca(cluster_place, cluster.cluster),
        tls_server_name=cluster.cluster.tls_server_name,
        proxy_url=_validate_proxy(cluster_place, cluster.cluster),
        namespace=chosen.namespace or "default",
        source=f'kubeconfig {place.file}, context "{name}"',
    )


def _server_url_problem(url: str) -> str:
    """What is wrong with the address of an API server, or "" if nothing is. The address is not quoted: it may hold a password."""
    parts = _split_url(url)
    if parts is None or parts.scheme not in ("http", "https"):
        return "must be an address like https://host:port"
    if parts.username is not None or parts.query or parts.fragment:
        return "must be a plain address, without user:password@, ? or #; credentials belong into the user's entry"
    return ""


def _split_url(url: str) -> SplitResult | None:
    """The parts of an address with a host, and a port that can be one; None for anything else."""
    try:
        parts = urlsplit(url)
        return parts if parts.hostname and parts.port != 0 and url.split() == [url] else None
    except ValueError:
        return None


def is_encrypted(server: str) -> bool:
    """Whether the way to the server is TLS."""
    return urlsplit(server).scheme == "https"


def _validate_server(place: KubeconfigLocation, cluster: Cluster) -> str:
    """The server's address."""
    if not cluster.server:
        raise place.error(
            "server", "it is empty. Set the address of the API server, like https://host:6443."
        )
    if fault := _server_url_problem(cluster.server):
        raise place.error("server", fault)
    return cluster.server


def _validate_proxy(place: KubeconfigLocation, cluster: Cluster) -> str:
    """The proxy's address, "" for none."""
    parts = _split_url(cluster.proxy_url)
    scheme = parts.scheme if parts else ""
    if cluster.proxy_url and scheme not in ("http", "https"):
        what = (
            "SOCKS proxies are not supported"
            if scheme.startswith("socks")
            else "this is not a proxy's address"
        )
        raise place.error("proxy-url", f"{what}; use one that begins with http:// or https://")
    return cluster.proxy_url


def _load_ca(place: KubeconfigLocation, cluster: Cluster) -> bytes | None:
    """The certificates to trust, None for the system's. Not verifying is no choice here."""
    if cluster.insecure_skip_tls_verify:
        why = "TLS is always verified. Remove this and set certificate-authority or certificate-authority-data instead"
        raise place.error(
            "insecure-skip-tls-verify",
            f"{why} (and tls-server-name, if the certificate has another name).",
        )
    if cluster.certificate_authority_data:
        key = "certificate-authority-data"
        pem = decode_base64(place, key, cluster.certificate_authority_data)
    elif cluster.certificate_authority:
        key = "certificate-authority"
        pem = read_file(place, key, place.resolve_path(cluster.certificate_authority))
    else:
        return None
    if not is_certificate(pem):
        raise place.error(
            key, "the value does not hold a PEM certificate (-----BEGIN CERTIFICATE-----)"
        )
    return pem


def is_certificate(pem: bytes) -> bool:
    """Whether OpenSSL finds certificates, and no broken one, in there."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
            cadata=pem.decode("ascii", "ignore")
        )
    except (ssl.SSLError, ValueError):
        return False
    return True


def _build_identity(place: KubeconfigLocation, user: User, cluster: Cluster) -> Identity:
    """Who that user is; what we could only ignore is refused, since without it we would be somebody else."""
    _reject_unsupported(place, user)
    return Identity(
        token=user.token,
        token_file=place.resolve_path(user.token_file),
        username=user.username,
        password=user.password,
        client_cert_pem=decode_base64(
            place, "client-certificate-data", user.client_certificate_data
        ),
        client_key_pem=decode_base64(place, "client-key-data", user.client_key_data),
        client_cert_file=""
        if user.client_certificate_data
        else place.resolve_path(user.client_certificate),
        client_key_file="" if user.client_key_data else place.resolve_path(user.client_key),
        exec_plugin=_build_exec_plugin(
            KubeconfigLocation(place.file, f"{place.key}.exec"), user.exec, cluster
        )
        if user.exec
        else None,
        location=place,
    )


def _reject_unsupported(place: KubeconfigLocation, user: User) -> None:
    """Raise for what contradicts itself and for what we do not support."""
    if user.auth_provider is not None:
        raise place.error(
            "auth-provider",
            "Kubernetes has replaced auth providers by exec plugins. Set user.exec to the plugin of your provider instead.",
        )
    for key, value in (
        ("as", user.as_user),
        ("as-uid", user.as_uid),
        ("as-groups", user.as_groups),
        ("as-user-extra", user.as_user_extra),
    ):
        if value:
            raise place.error(
                key,
                "impersonation is not supported. Use a kubeconfig with credentials of that user.",
            )
    if (user.token or user.token_file) and user.username:
        raise place.error("username", "there is a token too. Keep one of the two.")
    has_certificate = bool(user.client_certificate or user.client_certificate_data)
    if has_certificate != bool(user.client_key or user.client_key_data):
        there, missing = (
            ("client-certificate", "client-key")
            if has_certificate
            else ("client-key", "client-certificate")
        )
        raise place.error(
            missing, f"there is a {there} without it. Set {missing} or {missing}-data."
        )


def _build_exec_plugin(
    place: KubeconfigLocation, config: ExecConfig, cluster: Cluster
) -> ExecPlugin:
    """The plugin, if it is one that can run without a person at the keyboard."""
    if not config.command:
        raise place.error("command", "it is empty. Set the plugin's command.")
    if config.api_version not in _EXEC_API_VERSIONS:
        raise place.error(
            "apiVersion",
            f"it must be {' or '.join(_EXEC_API_VERSIONS)}. Update the plugin and write its kubeconfig again.",
        )
    if config.interactive_mode not in ("", "Never", "IfAvailable", "Always"):
        raise place.error("interactiveMode", "it must be Never or IfAvailable")
    if config.interactive_mode == "Always":
        raise place.error(
            "interactiveMode",
            "Always needs a person at the keyboard, and there is none here. Use Never or IfAvailable.",
        )
    return ExecPlugin(
        command=place.resolve_path(config.command) if os.sep in config.command else config.command,
        args=config.args,
        env={entry.name: entry.value for entry in config.env},
        api_version=config.api_version,
        interactive_mode=config.interactive_mode or "IfAvailable",
        provide_cluster_info=config.provide_cluster_info,
        install_hint=config.install_hint,
        cluster_config=next(
            (e.extension for e in cluster.extensions if e.name == _EXEC_EXTENSION), None
        ),
    )
