"""Where CRDs come from: a file, a URL, or a cluster."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...errors import ConfigError, NotFound
from ...kubeconfig import load_config
from ...transport import Request, Transport
from ..changeset import read_text_if_exists
from .crd_source import Crd, parse_crd, read_crds

_DOWNLOAD_TIMEOUT_SECONDS = 60
# The largest release manifests, with the CRDs of a hundred kinds, have about 10 MB.
_MAX_DOWNLOAD_BYTES = 100 * 1024 * 1024
_CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def read_crd_file(path: Path) -> list[Crd]:
    text = read_text_if_exists(path)
    if text is None:
        raise ConfigError(f"{path} does not exist; check the path")
    return read_crds(text, str(path))


def download_crds(url: str) -> list[Crd]:
    try:
        with urllib.request.urlopen(url, timeout=_DOWNLOAD_TIMEOUT_SECONDS) as response:
            content: bytes = response.read(_MAX_DOWNLOAD_BYTES + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", "") or error
        raise ConfigError(
            f"{url} cannot be downloaded: {reason}; check the address, or download the file"
        ) from None
    if len(content) > _MAX_DOWNLOAD_BYTES:
        raise ConfigError(f"{url} has more than {_MAX_DOWNLOAD_BYTES // 1024**2} MB")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{url} is not UTF-8 text") from None
    if text.lstrip()[:1] == "<":
        raise ConfigError(
            f"{url} is a web page; use the address of the file itself, "
            "which the page may offer as `Raw` or `Download`"
        )
    return read_crds(text, url)


def fetch_crds_from_cluster(names: Sequence[str], kubeconfig: str, context: str) -> list[Crd]:
    """The CRDs of these names, `plural.group`, that are installed in the cluster."""
    return asyncio.run(_fetch(names, kubeconfig, context))


async def _fetch(names: Sequence[str], kubeconfig: str, context: str) -> list[Crd]:
    connection = await asyncio.to_thread(load_config, kubeconfig, "", context)
    transport = Transport(connection, user_agent="kubewright-import")
    try:
        crds = []
        for name in names:
            request = Request("GET", f"{_CRD_PATH}/{name}", operation=f"get CRD {name}")
            try:
                body = await transport.send(request)
            except NotFound:
                raise ConfigError(
                    f'the cluster has no CRD "{name}"; `kubectl get crd` lists those that it has'
                ) from None
            crds.append(parse_crd(msgspec.json.decode(body), f"CRD {name}"))
        return crds
    finally:
        await transport.close()
