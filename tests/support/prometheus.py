"""A real Prometheus that scrapes managers."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from kubewright.testing import eventually
from kubewright.testing.process import Process

_SCRAPE_INTERVAL = "1s"
_PORT = re.compile(r'msg="Listening on" .*address=\S+?:(\d+)')


class Prometheus:
    def __init__(self, process: Process) -> None:
        self.process = process

    def _read_port(self) -> str:
        match = _PORT.search(self.process.log.read_text() if self.process.log.exists() else "")
        return match[1] if match else ""

    async def wait_until_ready(self) -> None:
        await eventually(lambda: self._read_port() or not self.process.is_running, within=30)
        assert self.process.is_running, self.process.read_log_tail()

    async def get(self, path: str, **query: str) -> Any:
        def work() -> Any:
            url = f"http://127.0.0.1:{self._read_port()}/api/v1/{path}"
            url += f"?{urllib.parse.urlencode(query)}" if query else ""
            with urllib.request.urlopen(url, timeout=10) as response:
                return json.load(response)["data"]

        return await asyncio.to_thread(work)

    async def query(self, expr: str) -> list[Any]:
        """The samples of an instant query that are numbers."""
        samples = (await self.get("query", query=expr))["result"]
        return [sample for sample in samples if sample["value"][1] != "NaN"]


@asynccontextmanager
async def run_prometheus(
    binary: Path, folder: Path, *, job: str, url: str, token: str, rule_file: Path
) -> AsyncIterator[Prometheus]:
    """Prometheus with the rules, which scrapes a URL every second with a bearer token."""
    parts = urllib.parse.urlsplit(url)
    await asyncio.to_thread(folder.mkdir)
    config = folder / "prometheus.yaml"
    document = {
        "global": {"scrape_interval": _SCRAPE_INTERVAL, "evaluation_interval": _SCRAPE_INTERVAL},
        "rule_files": [str(rule_file)],
        "scrape_configs": [
            {
                "job_name": job,
                "scheme": parts.scheme,
                "metrics_path": parts.path,
                "tls_config": {"insecure_skip_verify": True},
                "authorization": {"credentials": token},
                "static_configs": [{"targets": [parts.netloc]}],
            }
        ],
    }
    await asyncio.to_thread(config.write_text, yaml.safe_dump(document))
    process = Process(
        "prometheus",
        [
            str(binary),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--web.listen-address=127.0.0.1:0",
        ],
        folder / "prometheus.log",
    )
    process.start()
    try:
        prometheus = Prometheus(process)
        await prometheus.wait_until_ready()
        yield prometheus
    finally:
        await process.stop(5)
