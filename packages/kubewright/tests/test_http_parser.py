"""Responses of HTTP/1.1 from bytes, in any division into reads, and malformed ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright_http import ConnectionBroken, MalformedResponse
from kubewright_http.parser import ResponseParser

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: a\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
    b"5\r\nhello\r\nA;name=x\r\n, world..\n\r\n0\r\nTrailer: x\r\n\r\n"
)
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


def read(data: bytes, method: str = "GET", sizes: list[int] | None = None) -> ResponseParser:
    parser = ResponseParser(method)
    for size in sizes or []:
        if data[:size]:
            parser.feed(data[:size])
        data = data[size:]
    if data:
        parser.feed(data)
    return parser


@pytest.mark.parametrize(
    ("data", "body"),
    [(LENGTH, b"hello"), (CHUNKED, b"hello, world..\n"), (INTERIM, b""), (NO_CONTENT, b"")],
)
@given(sizes=st.lists(st.integers(1, 30), max_size=60))
def test_division_into_reads_does_not_matter(data: bytes, body: bytes, sizes: list[int]) -> None:
    parser = read(data, sizes=sizes)
    assert parser.head is not None
    assert parser.head.status in (200, 204)
    assert (parser.is_complete, parser.keeps_connection) == (True, True)
    assert parser.take_body() == body


def test_headers_are_found_by_lower_case_name() -> None:
    head = read(
        b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7 \r\nset-cookie: a\r\nSet-Cookie: b\r\n"
        b"Content-Length: 0\r\n\r\n"
    ).head
    assert head is not None
    assert (head.status, head.reason, head.header("retry-after")) == (429, "Too Many Requests", "7")
    assert (head.header_values("set-cookie"), head.header("x")) == (["a", "b"], "")


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 0",
    ],
)
def test_connection_is_not_kept(head: bytes) -> None:
    assert not read(head + b"\r\n\r\n").keeps_connection


def test_old_server_may_keep_the_connection() -> None:
    parser = read(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n")
    assert parser.keeps_connection


@pytest.mark.parametrize("data", [LENGTH, CHUNKED, NO_CONTENT])
def test_connection_with_more_than_the_response_is_not_kept(data: bytes) -> None:
    parser = read(data + b"HTTP/1.1 200 OK\r\n")
    assert (parser.is_complete, parser.keeps_connection) == (True, False)


def test_response_to_head_has_no_body() -> None:
    parser = read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD")
    assert (parser.is_complete, parser.keeps_connection) == (True, True)


def test_body_without_a_length_ends_with_the_connection() -> None:
    parser = read(b"HTTP/1.1 200 OK\r\n\r\nhel")
    parser.feed(b"lo")
    assert not parser.is_complete
    parser.feed_eof()
    assert (parser.is_complete, parser.keeps_connection) == (True, False)
    assert parser.take_body() == b"hello"


@pytest.mark.parametrize("data", [LENGTH, CHUNKED])
def test_truncated_response_is_broken(data: bytes) -> None:
    for size in range(len(data)):
        parser = read(data[:size])
        with pytest.raises(ConnectionBroken, match="before" if not size else "during"):
            parser.feed_eof()


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"<html>",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nname : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nname: x\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nname: x\ny: z\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 5000,
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"name: value\r\n" * 10_000,
        b"HTTP/1.1 200 OK\r\n" + b"name: value\r\n" * 10_000 + b"\r\n",
    ],
)
def test_malformed_response_is_rejected(data: bytes) -> None:
    with pytest.raises(MalformedResponse):
        read(data)


@given(st.binary(max_size=300), st.sampled_from([b"", LENGTH[:40], CHUNKED[:60]]))
def test_arbitrary_bytes_raise_nothing_else(data: bytes, start: bytes) -> None:
    parser = ResponseParser("GET")
    try:
        parser.feed(start + data)
        parser.feed_eof()
    except (MalformedResponse, ConnectionBroken):
        pass
