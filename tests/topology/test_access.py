"""Access to the topology, and what a response must never contain."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubewright.authorization import Decision
from support.fake_node_cluster import FakeNodeCluster, add_three_nodes
from support.topology_cluster import TopologyClient, run_topology

DATA_PATHS = (
    "/topology",
    "/topology/events",
    "/topology/changes",
    "/topology/nodes/node-1/pods",
    "/topology/pods?search=web",
    "/topology/what-if/hosts/vc-1/host-1",
    "/topology/objects/nodes/node-1",
    "/topology/objects/pods/default/web",
    "/topology/objects/vmgroups/default/web",
)
HOSTILE_NAMES = (
    "<img src=x onerror=alert(1)>",
    "\u202egnp.exe",
    "\U0001f600" * 80,
    'quote " and \\ and </script>',
    "line\nbreak\r\n\r\nevent: reset",
)


class TokenAuthorizer:
    """Allows the token `reader`; the bearer of `guest` is known, but has no role."""

    async def authorize(self, token: str, verb: str, path: str) -> Decision:
        if token == "reader" and path.startswith("/topology") and verb == "get":
            return "allowed"
        return "forbidden" if token in ("reader", "guest") else "unauthenticated"


@pytest.fixture
def cluster() -> FakeNodeCluster:
    cluster = FakeNodeCluster()
    add_three_nodes(cluster)
    return cluster


@pytest.fixture
def ui_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "ui"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>page</title>")
    (folder / "assets" / "page.js").write_text("export {};")
    (folder / "notes.txt").write_text("not part of the page")
    (tmp_path / "secret.js").write_text("outside")
    return folder


@pytest.fixture
async def local(cluster: FakeNodeCluster, ui_folder: Path) -> AsyncIterator[TopologyClient]:
    async with run_topology(cluster, ui_folder=ui_folder) as client:
        yield client


@pytest.fixture
async def remote(cluster: FakeNodeCluster, ui_folder: Path) -> AsyncIterator[TopologyClient]:
    async with run_topology(
        cluster, "0.0.0.0:0", ui_folder=ui_folder, authorizer=TokenAuthorizer()
    ) as client:
        yield client


async def test_remote_address_needs_a_token_with_a_role(remote: TopologyClient) -> None:
    assert remote.address.startswith("https://")
    for path in DATA_PATHS:
        assert await remote.status_of(path) == 401
        assert await remote.status_of(path, Authorization="Bearer unknown") == 401
        assert await remote.status_of(path, Authorization="Bearer guest") == 403
    reader = "Bearer reader"
    assert await remote.status_of("/topology", Authorization=reader) == 200
    assert await remote.status_of("/topology/changes", Authorization=reader) == 200
    # A role with the verb get is enough for HEAD too.
    assert await remote.status_of("/topology", "HEAD", Authorization=reader) == 200
    assert await remote.status_of("/topology", "HEAD", Authorization="Bearer guest") == 403
    assert await remote.status_of(DATA_PATHS[-1], Authorization=reader) == 404


async def test_static_files_need_no_token_and_have_no_inventory(remote: TopologyClient) -> None:
    for path, content_type in (
        ("/", "text/html; charset=utf-8"),
        ("/index.html", "text/html; charset=utf-8"),
        ("/assets/page.js", "text/javascript; charset=utf-8"),
    ):
        async with remote.request(path) as response:
            assert response.status == 200
            assert response.headers["Content-Type"] == content_type
            assert "esxi" not in await response.text()
            etag = response.headers["ETag"]
        assert await remote.status_of(path, If_None_Match=etag) == 304


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.js",
        "/%2e%2e/secret.js",
        "/assets/..%2f..%2fsecret.js",
        "/assets/%2e%2e/%2e%2e/secret.js",
        "//etc/passwd",
        "/notes.txt",
        "/assets/",
        "/topology/",
        "/topology%2Fchanges",
        "/topology/other",
    ],
)
async def test_other_paths_are_not_found(remote: TopologyClient, path: str) -> None:
    reader, writer = await _open(remote)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 401")), answer[:200]
    assert b"outside" not in answer
    assert b"esxi" not in answer


async def _open(client: TopologyClient) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return await asyncio.open_connection("127.0.0.1", client.server.endpoint.port, ssl=context)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9090", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:9090", 200),
        ("attacker.example", 403),
        ("attacker.example:9090", 403),
        ("localhost.attacker.example", 403),
        ("127.0.0.1.attacker.example", 403),
        ("10.0.0.1", 403),
        ("", 403),
    ],
)
async def test_loopback_address_checks_the_host_header(
    local: TopologyClient, host: str, status: int
) -> None:
    """A web site with a name that resolves to 127.0.0.1 must not read the topology."""
    assert await local.status_of("/topology", Host=host) == status
    assert await local.status_of("/", Host=host) == status


async def test_other_web_sites_are_rejected(local: TopologyClient) -> None:
    for path in ("/topology", "/topology/events"):
        for site in ("cross-site", "same-site"):
            assert await local.status_of(path, Sec_Fetch_Site=site) == 403
    assert await local.status_of("/topology", Sec_Fetch_Site="same-origin") == 200
    assert await local.status_of("/", Sec_Fetch_Site="cross-site") == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
async def test_only_reads_are_allowed(local: TopologyClient, method: str) -> None:
    for path in ("/", "/topology", "/topology/what-if/hosts/vc-1/host-1", "/none"):
        async with local.request(path, method) as response:
            assert response.status == 405
            assert response.headers["Allow"] == "GET, HEAD"


async def test_every_response_has_the_security_headers(local: TopologyClient) -> None:
    for path in ("/", "/assets/page.js", "/none", *DATA_PATHS):
        async with local.request(path) as response:
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Referrer-Policy"] == "no-referrer"
            assert "Access-Control-Allow-Origin" not in response.headers


async def test_hostile_names_stay_text(cluster: FakeNodeCluster, local: TopologyClient) -> None:
    revision = (await local.get("/topology"))["revision"]
    for number, name in enumerate(HOSTILE_NAMES, 100):
        cluster.add_vm(number, 1, 5, name=name)
    last = f"vc-1/vm-{99 + len(HOSTILE_NAMES)}"
    await local.wait_for("vms", last, name=HOSTILE_NAMES[-1])
    async with local.request("/topology") as response:
        assert response.headers["Content-Type"].startswith("application/json")
        names = {vm["name"] for vm in (await response.json())["vms"]}
    assert set(HOSTILE_NAMES) <= names
    async with local.request(f"/topology/events?since={revision}") as response:
        # A line break in a name must not end the data of an event.
        event, _, data, _ = [await response.content.readline() for _ in range(4)]
        assert event == b"event: change\n"
        assert b"event: reset" in data
    result = await local.get("/topology/what-if/hosts/vc-1/host-1")
    assert set(HOSTILE_NAMES) <= {vm["name"] for vm in result["vms"]}
    changes = (await local.get("/topology/changes"))["changes"]
    assert [change["name"] for change in changes[: len(HOSTILE_NAMES)]] == list(
        reversed(HOSTILE_NAMES)
    )


async def test_object_of_another_kind_cannot_be_read(local: TopologyClient) -> None:
    for plural in ("secrets", "configmaps", "events", "persistentvolumes", "nodes", "pods"):
        assert await local.status_of(f"/topology/objects/{plural}/default/x") == 404
    for path in ("secrets/x", "hostinfoes/x", "nodes/missing", "nodes/default/node-1"):
        assert await local.status_of(f"/topology/objects/{path}") == 404


async def test_build_without_a_page_explains_itself(
    cluster: FakeNodeCluster, tmp_path: Path
) -> None:
    async with (
        run_topology(cluster, ui_folder=tmp_path / "none") as client,
        client.request("/") as response,
    ):
        assert response.status == 404
        assert "/topology has the model" in await response.text()
