"""An API server that responds at once, for one kind with many objects. It shows what a replica can
do if the API server is not the limit.

    python -m bench.stub_api --objects 30000 --shards-supported

It stores MyCustomResources as bytes, and answers lists, watches and status patches of them without
validation. Every other request goes to kubewright's FakeApi. It speaks HTTP without TLS.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from kubewright.errors import ApiError
from kubewright.shard_ranges import hash_field
from kubewright.testing.fake import FakeApi
from kubewright.testing.fake.shard_selector import parse_shard_selector
from kubewright.transport import Request

KIND_PATH = "/apis/poc.test.domain/v1/mycustomresources"
NAMESPACE = "bench"
FRIEND = "friend"
_ITEM_PATH = f"/apis/poc.test.domain/v1/namespaces/{NAMESPACE}/mycustomresources/"
_STATUS_SUFFIX = "/status"
_JSON = msgspec.json


@dataclass
class StoredObject:
    metadata: dict[str, Any]
    status: dict[str, Any]

    def encode(self) -> bytes:
        body = {
            "apiVersion": "poc.test.domain/v1",
            "kind": "MyCustomResource",
            "metadata": self.metadata,
            "spec": {"name": FRIEND},
            "status": self.status,
        }
        return _JSON.encode(body)


class StubApi:
    def __init__(self, objects: int, *, selects_shards: bool) -> None:
        self.fake = FakeApi()
        self.selects_shards = selects_shards
        self.objects = {f"object-{number}": self._new_object(number) for number in range(objects)}
        self._selected: dict[str, list[StoredObject]] = {}
        self.watchers: dict[asyncio.StreamWriter, Callable[[StoredObject], bool]] = {}

    def _new_object(self, number: int) -> StoredObject:
        uid = str(uuid.UUID(int=hash_field(str(number)) << 64 | number))
        metadata = {
            "name": f"object-{number}",
            "namespace": NAMESPACE,
            "uid": uid,
            "resourceVersion": str(self._next_revision()),
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        return StoredObject(metadata, {})

    def _next_revision(self) -> int:
        # One order of all objects, as in etcd.
        self.fake.revision += 1
        return self.fake.revision

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The requests of one connection, one after the other."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                first, *lines = head.decode("latin-1").split("\r\n")
                method, target, _ = first.split(" ", 2)
                headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                path, _, query = target.partition("?")
                if "watch=1" in query:
                    await self._watch(writer, path, query, headers)
                    return
                status, answer = await self._answer(method, path, query, body, headers)
                writer.write(_response(status, answer))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.watchers.pop(writer, None)
            writer.close()

    async def _answer(
        self, method: str, path: str, query: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        is_status = path.startswith(_ITEM_PATH) and path.endswith(_STATUS_SUFFIX)
        if is_status and method in ("PATCH", "PUT"):
            return self._write_status(path, body, replaces=method == "PUT")
        if method == "GET" and path == KIND_PATH:
            return 200, self._list(dict(parse_qsl(query)))
        request = Request(
            method,
            path,
            query,
            body or None,
            headers.get("content-type", ""),
            headers.get("accept", "application/json"),
            operation=f"{method} {path}",
        )
        try:
            return 200, await self.fake.send(request)
        except ApiError as error:
            text = {"kind": "Status", "message": str(error), "reason": error.reason}
            return error.status_code, _JSON.encode(text | {"code": error.status_code})

    def _list(self, query: dict[str, str]) -> bytes:
        selector = query.get("shardSelector", "") if self.selects_shards else ""
        selected = self._select(selector)
        start, limit = int(query.get("continue", "0")), int(query.get("limit", len(selected) or 1))
        end = start + limit
        metadata: dict[str, Any] = {"resourceVersion": str(self.fake.revision)}
        if end < len(selected):
            metadata["continue"] = str(end)
        if selector:
            metadata["shardInfo"] = {"selector": selector}
        items = b",".join(obj.encode() for obj in selected[start:end])
        return b'{"metadata":%b,"items":[%b]}' % (_JSON.encode(metadata), items)

    def _select(self, selector: str) -> list[StoredObject]:
        # Once for all pages: no object is ever added or removed.
        if selector not in self._selected:
            matches = self._build_match(selector)
            self._selected[selector] = [obj for obj in self.objects.values() if matches(obj)]
        return self._selected[selector]

    def _build_match(self, selector: str) -> Callable[[StoredObject], bool]:
        if not selector:
            return lambda obj: True
        matches = parse_shard_selector(selector)
        return lambda obj: matches({"metadata": obj.metadata})

    def _write_status(self, path: str, body: bytes, *, replaces: bool) -> tuple[int, bytes]:
        obj = self.objects[path[len(_ITEM_PATH) : -len(_STATUS_SUFFIX)]]
        patch = _JSON.decode(body)
        version = patch.get("metadata", {}).get("resourceVersion")
        if version not in (None, obj.metadata["resourceVersion"]):
            return 409, _JSON.encode({"kind": "Status", "message": "changed", "reason": "Conflict"})
        obj.status = patch["status"] if replaces else obj.status | patch["status"]
        obj.metadata["resourceVersion"] = str(self._next_revision())
        encoded = obj.encode()
        line = b'{"type":"MODIFIED","object":%b}\n' % encoded
        chunk = b"%x\r\n%b\r\n" % (len(line), line)
        for writer, matches in self.watchers.items():
            if matches(obj):
                writer.write(chunk)
        return 200, encoded

    async def _watch(
        self, writer: asyncio.StreamWriter, path: str, query: str, headers: dict[str, str]
    ) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        if path == KIND_PATH:
            selector = dict(parse_qsl(query)).get("shardSelector", "")
            self.watchers[writer] = self._build_match(selector if self.selects_shards else "")
            await writer.wait_closed()
            return
        request = Request(
            "GET", path, query, accept=headers.get("accept", ""), operation=f"watch {path}"
        )
        async for line in self.fake.stream_lines(request, idle_timeout_seconds=10_000):
            writer.write(b"%x\r\n%b\n\r\n" % (len(line) + 1, line))
        writer.write(b"0\r\n\r\n")


def _response(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        status,
        len(body),
        body,
    )


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.stub_api")
    parser.add_argument("--objects", type=int, default=1000)
    parser.add_argument("--shards-supported", action="store_true")
    options = parser.parse_args()
    stub = StubApi(options.objects, selects_shards=options.shards_supported)
    server = await asyncio.start_server(stub.serve, "127.0.0.1", 0, limit=2**22)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
