"""A server or a proxy that sends malformed lines into a watch: the cost is bounded, and nothing is
missed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubewright.controller import controller
from kubewright.testing import eventually
from kubewright.testing.proxy import HttpProxy

from ..support.api_harness import ApiHarness, run_manager
from ..support.widget_kind import Widget, double
from .proxied_manager import (
    WIDGETS_PATH,
    change_widgets,
    connect_through,
    create_widgets,
    wait_until_reconciled,
)

MIB = 1024 * 1024
LINE_BYTES = 256 * MIB
ALLOWED_BYTES = 8 * MIB


def nested_json(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


MALFORMED_LINES = {
    "not JSON": b"this is not JSON",
    "not text": bytes(range(128, 256)),
    "half a line": b'{"type":"ADDED","object":{"metadata":{"name":"h',
    "a list": b"[]",
    "null": b"null",
    "nested": f'{{"type":"ADDED","object":{nested_json(100_000)}}}'.encode(),
    "nested in a widget": (
        b'{"type":"ADDED","object":{"metadata":{"name":"h","namespace":"h","resourceVersion":"1"},'
        + f'"spec":{nested_json(100_000)}}}}}'.encode()
    ),
    "nested error": f'{{"type":"ERROR","object":{nested_json(100_000)}}}'.encode(),
    "an empty error": b'{"type":"ERROR","object":{}}',
    "an error that is not an object": b'{"type":"ERROR","object":"boo"}',
    "an error with a strange code": b'{"type":"ERROR","object":{"code":"boo"}}',
    "an object without a name": b'{"type":"MODIFIED","object":{}}',
    "an object that is a number": b'{"type":"MODIFIED","object":7}',
    "a version that is not a number": (
        b'{"type":"MODIFIED","object":{"metadata":{"name":"h","namespace":"h",'
        b'"resourceVersion":"boo"}}}'
    ),
    "a bookmark without a version": b'{"type":"BOOKMARK","object":{"metadata":{}}}',
    "a bookmark that is not a number": (
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"boo"}}}'
    ),
    "an unknown type": (
        b'{"type":"SHOUTED","object":{"metadata":{"name":"h","resourceVersion":"1"}}}'
    ),
}


@pytest.mark.parametrize("line", MALFORMED_LINES.values(), ids=MALFORMED_LINES.keys())
async def test_malformed_line_is_survived_and_nothing_is_missed(
    real_api: ApiHarness, http_proxy: HttpProxy, tmp_path: Path, line: bytes
) -> None:
    api = await connect_through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    await create_widgets(api)
    async with run_manager(api, controller(Widget, double)) as manager:
        await wait_until_reconciled(api, manager)
        await eventually(lambda: http_proxy.find_watches(WIDGETS_PATH))
        assert await http_proxy.inject_line(line, WIDGETS_PATH) == 1
        await change_widgets(api)
        await wait_until_reconciled(api, manager)
        assert {key.name for key in manager.cache.store(Widget).objects} == {
            "kept",
            "changed",
            "created",
        }


async def test_endless_line_is_aborted_after_8_mib(
    real_api: ApiHarness, http_proxy: HttpProxy, tmp_path: Path
) -> None:
    api = await connect_through(real_api, http_proxy.write_kubeconfig(tmp_path / "config"))
    await create_widgets(api)
    async with run_manager(api, controller(Widget, double)) as manager:
        await wait_until_reconciled(api, manager)
        await eventually(lambda: http_proxy.find_watches(WIDGETS_PATH))
        before = read_resident_bytes()
        taken, peak = await send_endless_line(http_proxy)
        assert ALLOWED_BYTES <= taken <= 2 * ALLOWED_BYTES
        assert peak - before <= 6 * ALLOWED_BYTES
        await change_widgets(api)
        await wait_until_reconciled(api, manager)


async def send_endless_line(proxy: HttpProxy) -> tuple[int, int]:
    """Returns the bytes that the manager read, and the peak of the resident memory."""
    watch, piece = proxy.find_watches(WIDGETS_PATH)[0], b"x" * 65536
    peak = 0
    for taken in range(0, LINE_BYTES, len(piece)):
        try:
            await watch.response.write(piece)
            await asyncio.sleep(0)
        except ConnectionError:
            return taken, peak
        peak = max(peak, read_resident_bytes())
    return LINE_BYTES, peak


def read_resident_bytes() -> int:
    # The manager runs inside this process.
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024
