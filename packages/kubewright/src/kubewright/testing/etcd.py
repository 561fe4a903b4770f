"""A real etcd for tests: one member, in a temporary folder, without fsync."""

from __future__ import annotations

import asyncio
from pathlib import Path

from .http import HttpClient, encode_base64
from .port import ReservedPort
from .process import Process


class Etcd:
    """One etcd on a port of its own; speaks plain HTTP on 127.0.0.1."""

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
            "--unsafe-no-fsync",
            # A lone member elects itself, after one election timeout: 1 s by default.
            "--heartbeat-interval=20",
            "--election-timeout=200",
            "--log-level=warn",
        ]
        self.process = Process("etcd", [str(binary), *flags], folder / "etcd.log")

    async def start(self) -> None:
        """Start it; the API server waits for it by itself."""
        self.process.start()

    async def stop(self, grace_seconds: float) -> None:
        """End it and give its ports back."""
        await self.process.stop(grace_seconds)
        self.port.release()
        self._peer_port.release()

    async def get_revision(self) -> int:
        """The newest revision, which is also the newest resourceVersion."""
        return await asyncio.to_thread(self._read_revision_blocking)

    async def compact(self) -> int:
        """Forget all revisions before the newest, and return that one."""
        return await asyncio.to_thread(self._compact_blocking)

    def _read_revision_blocking(self) -> int:
        """Ask through etcd's JSON gateway."""
        with HttpClient(self.url) as https:
            answer = https.call(
                "POST", "/v3/kv/range", {"key": encode_base64(b"/"), "count_only": True}
            )
        return int(answer["header"]["revision"])

    def _compact_blocking(self) -> int:
        """Compact through etcd's JSON gateway; `physical` answers only when it is done."""
        revision = self._read_revision_blocking()
        with HttpClient(self.url) as https:
            https.call("POST", "/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision
