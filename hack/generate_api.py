"""Generates packages/kubewright-api from the OpenAPI documents of the pinned kube-apiserver.

    python -m hack.generate_api            start an API server, and write its documents and modules
    python -m hack.generate_api --check    fail if the modules are not those of the documents

The documents are committed in a reduced form, so that the check needs no API server. A test
compares them with those of the API server.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

from kubewright.builder.typegen.builtin_modules import TYPES, render_builtin_modules
from kubewright.builder.typegen.openapi_input import (
    ReducedInput,
    read_input,
    reduce_documents,
    write_input,
)
from kubewright.testing.apiserver import ApiServer
from kubewright.testing.binaries import find_binaries
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.pins import load_pins
from kubewright.version import NEWEST_KUBERNETES

PACKAGE = Path(__file__).parents[1] / "packages/kubewright-api"
INPUT = PACKAGE / "openapi.json.gz"
# Groups of Kubernetes itself, not those of CRDs.
_GROUP_VERSION_PATH = re.compile(r"(api|apis/([a-z]+|[a-z.]+\.k8s\.io))/v[^/]+")
_MODULES = PACKAGE / "src/kubewright/api"


def download_input(apiserver: ApiServer) -> ReducedInput:
    """The documents of every group and version that the API server serves by default."""
    with apiserver.admin_client() as client:
        # The index is sent as text, not as JSON.
        paths = json.loads(client.call("GET", "/openapi/v3"))["paths"]
        documents = [
            client.call("GET", entry["serverRelativeURL"])
            for path, entry in sorted(paths.items())
            if _GROUP_VERSION_PATH.fullmatch(path)
        ]
        version = client.call("GET", "/version")["gitVersion"]
    return reduce_documents(version, documents, TYPES)


async def _download() -> None:
    async with ControlPlane(find_binaries(pins=load_pins(NEWEST_KUBERNETES))) as plane:
        write_input(INPUT, await asyncio.to_thread(download_input, plane.apiserver))


def _write_modules() -> None:
    sources = render_builtin_modules(read_input(INPUT))
    for path in set(_MODULES.glob("*.py")) - {_MODULES / name for name in sources}:
        path.unlink()
    for name, source in sources.items():
        (_MODULES / name).write_text(source)
    print(f"wrote {len(sources)} modules to {_MODULES}")


def find_stale_modules() -> list[str]:
    sources = render_builtin_modules(read_input(INPUT))
    committed = {path.name: path.read_text() for path in _MODULES.glob("*.py")}
    return sorted(
        name
        for name in sources.keys() | committed.keys()
        if sources.get(name) != committed.get(name)
    )


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        if stale := find_stale_modules():
            print(f"stale in packages/kubewright-api: {', '.join(stale)}. Run `make generate`.")
        return int(bool(stale))
    asyncio.run(_download())
    _write_modules()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
