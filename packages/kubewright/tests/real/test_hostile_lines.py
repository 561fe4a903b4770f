"""A server, or somebody between us and it, that sends nonsense into a watch: it costs a bounded amount, and nothing is missed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubewright.controller import controller
from kubewright.testing import eventually
from kubewright.testing.proxy import HttpProxy

from ..kinds import Widget, double
from ..rig import Api, running
from .wire import WIDGETS, change_three, settled, three, through

MIB = 1024 * 1024
OFFERED_BYTES = 256 * MIB
ALLOWED_BYTES = 8 * MIB


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


NONSENSE = {
    "no JSON": b"this is no JSON",
    "no text": bytes(range(128, 256)),
    "half a line": b'{"type":"ADDED","object":{"metadata":{"name":"h',
    "a list": b"[]",
    "null": b"null",
    "nested": f'{{"type":"ADDED","object":{nested(100_000)}}}'.encode(),
    "nested in a widget": (
        f'{{"type":"ADDED","object":{{"metadata":{{"name":"h","namespace":"h","resourceVersion":"1"}},"spec":{nested(100_000)}}}}}'.encode()
    ),
    "nested error": f'{{"type":"ERROR","object":{nested(100_000)}}}'.encode(),
    "an error without a word": b'{"type":"ERROR","object":{}}',
    "an error that is no object": b'{"type":"ERROR","object":"boo"}',
    "an error with a strange code": b'{"type":"ERROR","object":{"code":"boo"}}',
    "an object without a name": b'{"type":"MODIFIED","object":{}}',
    "an object that is none": b'{"type":"MODIFIED","object":7}',
    "a version that is no number": b'{"type":"MODIFIED","object":{"metadata":{"name":"h","namespace":"h","resourceVersion":"boo"}}}',
    "a bookmark without a version": b'{"type":"BOOKMARK","object":{"metadata":{}}}',
    "a bookmark that is no number": b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"boo"}}}',
    "a type that nobody knows": b'{"type":"SHOUTED","object":{"metadata":{"name":"h","resourceVersion":"1"}}}',
}


@pytest.mark.parametrize("line", NONSENSE.values(), ids=NONSENSE.keys())
async def test_a_line_of_nonsense_is_survived_and_nothing_is_missed(
    real_api: Api, http_proxy: HttpProxy, tmp_path: Path, line: bytes
) -> None:
    api = await through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    await three(api)
    async with running(api, controller(Widget, double)) as manager:
        await settled(api, manager)
        await eventually(lambda: http_proxy.find_watches(WIDGETS))
        assert await http_proxy.inject_line(line, WIDGETS) == 1
        await change_three(api)
        await settled(api, manager)
        assert {key.name for key in manager.cache.store(Widget).objects} == {
            "kept",
            "changed",
            "created",
        }


async def test_a_line_without_end_is_given_up_after_8_mib(
    real_api: Api, http_proxy: HttpProxy, tmp_path: Path
) -> None:
    api = await through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    await three(api)
    async with running(api, controller(Widget, double)) as manager:
        await settled(api, manager)
        await eventually(lambda: http_proxy.find_watches(WIDGETS))
        before = memory_bytes()
        taken, peak = await offer_endless_line(http_proxy)
        assert ALLOWED_BYTES <= taken <= 2 * ALLOWED_BYTES
        assert peak - before <= 6 * ALLOWED_BYTES
        await change_three(api)
        await settled(api, manager)


async def offer_endless_line(proxy: HttpProxy) -> tuple[int, int]:
    """Send a line without end into the watch; returns how much of it was taken, and this process' largest memory meanwhile."""
    watch, piece = proxy.find_watches(WIDGETS)[0], b"x" * 65536
    peak = 0
    for taken in range(0, OFFERED_BYTES, len(piece)):
        try:
            await watch.response.write(piece)
            await asyncio.sleep(0)
        except ConnectionError:
            return taken, peak
        peak = max(peak, memory_bytes())
    return OFFERED_BYTES, peak


def memory_bytes() -> int:
    """What this process holds in memory now; the manager runs inside it."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024
