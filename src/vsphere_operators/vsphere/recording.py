"""Requests to a vCenter and its responses, as files without names, addresses and secrets.

    index.json                                 what was sent, in order, and each status
    00001-RetrieveServiceContent-request.xml
    00001-RetrieveServiceContent-response.xml

Why are there no headers?  They have the session key and, at a REST login, the password.
When are the files written?  At the end: until then nothing is on disk, and replacing names does
    not delay the calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from .address import Address
from .anonymizer import Anonymizer
from .transport import CallMetrics, Response, SoapClient

_INDEX_FILE = "index.json"
_FORMAT = 1
_API_PATH = "/sdk"


class Exchange(Struct, frozen=True, kw_only=True):
    """One request and the response to it."""

    # The name of the method; of a REST call the verb and the path.
    method: str
    verb: str
    path: str
    # The SOAPAction header, which has the version of the API.
    action: str = ""
    request: bytes = b""
    status: int
    response: bytes = b""


class _IndexEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    method: str
    verb: str
    path: str
    status: int
    action: str = ""
    # Names of files; "" without a body.
    request: str = ""
    response: str = ""


class _Index(Struct, frozen=True, kw_only=True):
    format: int
    exchanges: tuple[_IndexEntry, ...]


class RecordingSoapClient(SoapClient):
    """A client that keeps all requests that got a response."""

    def __init__(self, address: Address, metrics: CallMetrics, exchanges: list[Exchange]) -> None:
        super().__init__(address, metrics)
        self._exchanges = exchanges

    async def request(
        self,
        verb: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_seconds: float,
        method: str,
        send_within_seconds: float | None = None,
    ) -> Response:
        response = await super().request(
            verb, path, body, headers, timeout_seconds, method, send_within_seconds
        )
        self._exchanges.append(
            Exchange(
                method=method,
                verb=verb,
                # A reverse proxy may serve the SOAP API at another path; a replay serves /sdk.
                path=_API_PATH if path == self.address.path else path,
                action=headers.get("SOAPAction", ""),
                request=body or b"",
                status=response.status,
                response=response.body,
            )
        )
        return response


def write_recording(folder: Path, exchanges: Sequence[Exchange], anonymizer: Anonymizer) -> None:
    """Write all exchanges, anonymized. Other users cannot read the files."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    entries = [
        _write_exchange(folder, f"{number:05}", exchange, anonymizer)
        for number, exchange in enumerate(exchanges, 1)
    ]
    index = _Index(format=_FORMAT, exchanges=tuple(entries))
    _write_file(folder / _INDEX_FILE, msgspec.json.format(msgspec.json.encode(index), indent=1))


def _write_exchange(
    folder: Path, number: str, exchange: Exchange, anonymizer: Anonymizer
) -> _IndexEntry:
    path = anonymizer.replace_path(exchange.path)
    is_soap = bool(exchange.action)
    label = exchange.method if is_soap else f"{exchange.verb}{path.partition('?')[0]}"
    # Cut, because the path of a tag ends with its long id.
    stem = f"{number}-{re.sub(r'[^A-Za-z0-9_]+', '-', label)[:60].strip('-')}"
    names = {}
    for part, body in (("request", exchange.request), ("response", exchange.response)):
        if text := anonymizer.replace_body(body):
            names[part] = f"{stem}-{part}.{'xml' if is_soap else 'json'}"
            _write_file(folder / names[part], text)
    return _IndexEntry(
        method=exchange.method if is_soap else f"{exchange.verb} {path.partition('?')[0]}",
        verb=exchange.verb,
        path=path,
        status=exchange.status,
        action=exchange.action,
        request=names.get("request", ""),
        response=names.get("response", ""),
    )


def _write_file(path: Path, body: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(body + b"\n")


def read_recording(folder: Path) -> list[Exchange]:
    """The exchanges in the order in which they were recorded.

    Raises ValueError if the folder is not a recording, or is not complete.
    """
    try:
        index = msgspec.json.decode((folder / _INDEX_FILE).read_bytes(), type=_Index)
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(
            f"{folder} is not a recording of `manager doctor -record`: {error}"
        ) from None
    if index.format != _FORMAT:
        raise ValueError(
            f"{folder} has format {index.format}, and this version reads format {_FORMAT}; "
            "record again with this version"
        )

    def read(name: str) -> bytes:
        # Others send recordings, and the index must not name files outside of them.
        if Path(name).name != name:
            raise ValueError(f'{folder} names the file "{name}", which is not in it')
        try:
            return (folder / name).read_bytes().rstrip(b"\n") if name else b""
        except OSError as error:
            raise ValueError(f"{folder} is not complete: {error}") from None

    return [
        Exchange(
            method=entry.method,
            verb=entry.verb,
            path=entry.path,
            action=entry.action,
            request=read(entry.request),
            status=entry.status,
            response=read(entry.response),
        )
        for entry in index.exchanges
    ]
