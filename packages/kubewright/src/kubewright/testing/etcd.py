"""A real etcd for tests: one member, in a temporary folder, without fsync."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

from .cluster_access import HttpClient, encode_base64
from .process import Process, ReservedPort


class Etcd:
    """One etcd that serves plain HTTP on a free port of 127.0.0.1."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.port, self._peer_port = ReservedPort(), ReservedPort()
        self.url = f"http://127.0.0.1:{self.port.number}"
        peer_url = f"http://127.0.0.1:{self._peer_port.number}"
        flags = [
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            "--socket-reuse-port",
            # The data need not survive a crash of the machine, and fsync dominates test time.
            "--unsafe-no-fsync",
            # A single member elects itself after one election timeout, which is 1 s by default.
            # With shorter intervals, an idle etcd uses twice the CPU for its timer.
            "--heartbeat-interval=100",
            "--election-timeout=500",
            "--log-level=warn",
        ]
        self.process = Process("etcd", [str(binary), *flags], folder / "etcd.log")

    async def start(self) -> None:
        # No wait for readiness: the API server retries until etcd answers.
        self.process.start()

    async def stop(self, grace_seconds: float) -> None:
        await self.process.stop(grace_seconds)
        self.port.release()
        self._peer_port.release()

    def list_keys(self, prefix: str) -> list[str]:
        """All keys with a prefix, without their values."""
        start = prefix.encode()
        # As etcd defines a prefix: up to the next string of the same length.
        end = start[:-1] + bytes([start[-1] + 1])
        query = {"key": encode_base64(start), "range_end": encode_base64(end), "keys_only": True}
        with HttpClient(self.url) as client:
            entries = client.call("POST", "/v3/kv/range", query).get("kvs", [])
        return [base64.b64decode(entry["key"]).decode() for entry in entries]

    async def compact(self) -> int:
        """Discard all revisions before the latest, and return the latest."""
        return await asyncio.to_thread(self._compact_blocking)

    def _compact_blocking(self) -> int:
        # etcd's JSON gateway maps its gRPC methods to HTTP.
        query = {"key": encode_base64(b"/"), "count_only": True}
        with HttpClient(self.url) as client:
            revision = int(client.call("POST", "/v3/kv/range", query)["header"]["revision"])
            # With `physical` the call returns only when the compaction is done.
            client.call("POST", "/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision
