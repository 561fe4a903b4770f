"""Reads a response of HTTP/1.1 (RFC 9112) from bytes, without a connection.

    parser = ResponseParser("GET")
    parser.feed(data)           until `head` is set, and later until `is_complete`
    parser.take_body()          what has arrived of the body since the last call

Where does the body end?  By Transfer-Encoding: chunked, else by Content-Length, else at the end of
    the connection, which the caller reports with `feed_eof`.
Why is so much rejected?  Two readers that disagree about where a response ends take one response
    for another. What RFC 9112 does not allow is MalformedResponse, never a guess.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from .errors import ConnectionBroken, MalformedResponse

# For comparison: net/http of Go accepts headers of 10 MiB, nginx of 8 KiB.
_MAX_HEAD_BYTES = 64 * 1024
_MAX_CHUNK_LINE_BYTES = 4096
_MAX_TRAILER_BYTES = 64 * 1024
_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([^\r\n\0]*))?\r\n")
# A whole block and its lines in C: the headers are in the path of every request.
_HEADERS = re.compile(r"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n\0]*\r\n)*")
_HEADER = re.compile(r"([^:]+):[ \t]*([^\r]*)\r\n")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_PREFIX = b"HTTP/1."
_STATUSES_WITHOUT_BODY = (204, 304)


class Head(NamedTuple):
    """The status line and the headers; names are in lower case."""

    status: int
    reason: str
    is_http_1_0: bool
    headers: list[tuple[str, str]]

    def header(self, name: str) -> str:
        """The first header of that name, or ""."""
        return next((value for header, value in self.headers if header == name), "")

    def header_values(self, name: str) -> list[str]:
        return [value for header, value in self.headers if header == name]


class ResponseParser:
    """One response. Create a new parser for each request."""

    __slots__ = (
        "_buffer",
        "_chunks",
        "_ends_with_connection",
        "_is_after_chunk",
        "_is_chunked",
        "_is_in_trailers",
        "_method",
        "_remaining",
        "_trailer_bytes",
        "content_length",
        "has_received",
        "head",
        "is_complete",
        "keeps_connection",
        "unread_bytes",
    )

    def __init__(self, method: str) -> None:
        self._method = method
        self.head: Head | None = None
        self.content_length: int | None = None
        self.is_complete = False
        # Whether another request can be sent over the connection afterwards.
        self.keeps_connection = True
        # Whether any byte of the response has arrived.
        self.has_received = False
        # The size of the part of the body that has arrived and was not taken.
        self.unread_bytes = 0
        self._chunks: list[bytes] = []
        self._buffer = b""
        self._is_chunked = self._is_after_chunk = self._is_in_trailers = False
        self._ends_with_connection = False
        self._remaining = self._trailer_bytes = 0

    def feed(self, data: bytes) -> None:
        self.has_received = True
        if self.head is None:
            data = self._read_head(self._buffer + data if self._buffer else data)
            if self.head is None:
                return
        if data:
            self._read_body(data)

    def feed_eof(self) -> None:
        """Report the end of the connection; ConnectionBroken if the response is not complete."""
        if self.is_complete:
            return
        if self.head is None or not self._ends_with_connection:
            state = "before" if not self.has_received else "during"
            raise ConnectionBroken(f"the server ended the connection {state} the response")
        self.is_complete = True

    def take_body(self) -> bytes:
        chunks = self._chunks
        if not chunks:
            return b""
        self._chunks, self.unread_bytes = [], 0
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _read_head(self, data: bytes) -> bytes:
        """Set `head` if it is complete. Returns the bytes after it."""
        while (end := data.find(b"\r\n\r\n")) >= 0:
            head = _parse_head(data[:end])
            data = data[end + 4 :]
            # 1xx is an interim response: the final one follows.
            if head.status >= 200:
                self._buffer = b""
                self._choose_framing(head)
                self.head = head
                return data
            if head.status == 101:
                raise MalformedResponse("the server switches to a protocol that was not requested")
        # Another protocol may never send the end of the headers.
        if not data.startswith(_PREFIX) and not _PREFIX.startswith(data):
            raise MalformedResponse("the response is not HTTP/1.1")
        if len(data) > _MAX_HEAD_BYTES:
            raise MalformedResponse(f"the headers are longer than {_MAX_HEAD_BYTES} bytes")
        self._buffer = data
        return b""

    def _choose_framing(self, head: Head) -> None:
        encodings, lengths, options = list[str](), set[str](), list[str]()
        for name, value in head.headers:
            if name == "content-length":
                lengths.update(item.strip(" \t") for item in value.split(","))
            elif name == "transfer-encoding":
                encodings += [item.strip(" \t").lower() for item in value.split(",")]
            elif name == "connection":
                options += [item.strip(" \t").lower() for item in value.split(",")]
        self.keeps_connection = "close" not in options and (
            not head.is_http_1_0 or "keep-alive" in options
        )
        is_tunnel = self._method == "CONNECT" and head.status < 300
        if self._method == "HEAD" or is_tunnel or head.status in _STATUSES_WITHOUT_BODY:
            self.is_complete = True
        elif encodings:
            if encodings != ["chunked"]:
                raise MalformedResponse("a Transfer-Encoding other than chunked")
            self._is_chunked = True
            # A proxy that reads Content-Length instead sees the response end elsewhere.
            self.keeps_connection = self.keeps_connection and not lengths
        elif lengths:
            text = lengths.pop()
            if lengths or not (text.isascii() and text.isdigit()) or len(text) > 15:
                raise MalformedResponse("the Content-Length is not one number")
            self.content_length = self._remaining = int(text)
            self.is_complete = not self._remaining
        else:
            self._ends_with_connection, self.keeps_connection = True, False

    def _read_body(self, data: bytes) -> None:
        if self.is_complete:
            # More than the response: no request was sent for it.
            self.keeps_connection = False
        elif self._is_chunked:
            self._read_chunks(data)
        elif self._ends_with_connection:
            self._append(data)
        else:
            if len(data) > self._remaining:
                data, self.keeps_connection = data[: self._remaining], False
            self._append(data)
            self._remaining -= len(data)
            self.is_complete = not self._remaining

    def _append(self, data: bytes) -> None:
        self._chunks.append(data)
        self.unread_bytes += len(data)

    def _read_chunks(self, data: bytes) -> None:
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        position = 0
        while not self.is_complete:
            if self._remaining:
                chunk = data[position : position + self._remaining]
                if not chunk:
                    return
                self._append(chunk)
                position += len(chunk)
                self._remaining -= len(chunk)
                self._is_after_chunk = not self._remaining
                continue
            if self._is_after_chunk:
                separator = data[position : position + 2]
                if len(separator) < 2:
                    self._buffer = separator
                    return
                if separator != b"\r\n":
                    raise MalformedResponse("a chunk is longer than its size")
                position, self._is_after_chunk = position + 2, False
            end = data.find(b"\r\n", position)
            if end < 0:
                self._buffer = data[position:]
                if len(self._buffer) > _MAX_CHUNK_LINE_BYTES:
                    raise MalformedResponse("the size of a chunk, or a trailer, is too long")
                return
            self._read_chunk_line(data[position:end])
            position = end + 2
        if position < len(data):
            self.keeps_connection = False

    def _read_chunk_line(self, line: bytes) -> None:
        if self._is_in_trailers:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > _MAX_TRAILER_BYTES:
                raise MalformedResponse("the trailers are too long")
            self.is_complete = not line
            return
        match = _CHUNK_SIZE.fullmatch(line)
        if match is None:
            raise MalformedResponse("the size of a chunk is not a number")
        self._remaining = int(match[1], 16)
        self._is_in_trailers = not self._remaining


def _parse_head(block: bytes) -> Head:
    if len(block) > _MAX_HEAD_BYTES:
        raise MalformedResponse(f"the headers are longer than {_MAX_HEAD_BYTES} bytes")
    text = block.decode("latin-1") + "\r\n"
    match = _STATUS_LINE.match(text)
    if match is None:
        raise MalformedResponse("the response is not HTTP/1.1")
    if _HEADERS.fullmatch(text, match.end()) is None:
        raise MalformedResponse("a header without a name, or with a control character")
    headers = [
        (_lower(name), value.rstrip(" \t")) for name, value in _HEADER.findall(text, match.end())
    ]
    return Head(int(match[2]), match[3] or "", match[1] == "0", headers)


# The names are the same in all responses of a server.
_lower = lru_cache(maxsize=256)(str.lower)
