"""Tags over vCenter's REST endpoint (vAPI): which are attached to objects, and their names.

    endpoint = RestEndpoint(soap, log)
    await endpoint.call(username, password, lambda rest: rest.read_tags(["urn:..."]))

Why two APIs?  vCenter serves these calls under /api from 7.0 U2 on, and under /rest from 6.5 until
    9.0, which removed it. They differ in their paths, in the name of the parameter for an action,
    and in that /rest wraps each result.
Which one is used?  /api, and /rest if the server does not have it. The endpoint remembers which
    one worked; it tries the other one again only if that one is gone, as after an upgrade.
Why is a rejected login not tried at the other API?  It would be rejected there too, and count twice
    towards the lockout of the account.
Why not one session for all calls?  A REST session is one more session on the server, so it is open
    only during a call.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar
from urllib.parse import quote

from msgspec import Struct

from .decode_errors import DECODE_ERRORS
from .faults import (
    Busy,
    NotAuthenticated,
    NotFound,
    ObjectForbidden,
    Rejected,
    Unreachable,
    VCenterError,
    WrongLogin,
)
from .log import Log
from .parallel_calls import gather_limited
from .transport import SoapClient

ResultT = TypeVar("ResultT")

_SESSION_HEADER = "vmware-api-session-id"
# One call for 500 objects takes less than a second; a vCenter has at most 2,500 hosts.
_OBJECTS_PER_CALL = 500
_LOGOUT_TIMEOUT_SECONDS = 5.0
# What servers without an API respond to a login at its path. A server that has it, and rejects the
# user or is overloaded, responds 401, 403, 429 or 5xx.
_NOT_SERVED_STATUSES = (400, 404, 405, 410, 415, 501)


class RestApi(Struct, frozen=True):
    """How the calls of one of the two APIs are written."""

    name: str
    session_path: str
    tagging_path: str
    action_parameter: str
    # In front of an id in a path.
    id_prefix: str
    # A result is in the field `value` of the response.
    wraps_result: bool


API = RestApi("/api", "/api/session", "/api/cis/tagging", "action", "", False)
LEGACY_API = RestApi(
    "/rest",
    "/rest/com/vmware/cis/session",
    "/rest/com/vmware/cis/tagging",
    "~action",
    "id:",
    True,
)


class _ApiNotServed(NotFound):
    """The server does not have this API, or not these calls of it."""


class RestEndpoint:
    """The REST endpoint of one vCenter."""

    def __init__(self, soap: SoapClient, log: Log) -> None:
        self._soap, self._log = soap, log
        # The one that worked last comes first.
        self.apis: tuple[RestApi, ...] = (API, LEGACY_API)

    async def call(
        self, username: str, password: str, work: Callable[[RestSession], Awaitable[ResultT]]
    ) -> ResultT:
        """Run calls within one session, of the first API that the server has."""
        for api in self.apis:
            try:
                async with RestSession(self._soap, api, username, password, self._log) as rest:
                    result = await work(rest)
            except _ApiNotServed as error:
                self._log.debug("the server does not have this REST API", api=api.name, error=error)
                continue
            if api is not self.apis[0]:
                self.apis = (api, *(other for other in self.apis if other is not api))
                self._log.info("using another REST API of vCenter", api=api.name)
            return result
        raise Rejected(
            f"vCenter {self._soap.address.display_name} serves tags neither under /api nor under "
            "/rest. They need vSphere 6.5 or newer; check for a proxy that blocks these paths."
        )


class RestSession:
    def __init__(
        self, soap: SoapClient, api: RestApi, username: str, password: str, log: Log
    ) -> None:
        self._soap, self.api, self._username, self._log = soap, api, username, log
        self._basic_auth = b64encode(f"{username}:{password}".encode()).decode()
        self._session_key = ""

    async def __aenter__(self) -> Self:
        login = asyncio.create_task(self._login(), name="vcenter REST login")
        try:
            await asyncio.shield(login)
        except asyncio.CancelledError:
            # Without the response, the session key is unknown and the session stays open.
            await asyncio.wait([login], timeout=2 * _LOGOUT_TIMEOUT_SECONDS)
            if not login.cancel() and login.exception() is None:
                await self._logout()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._logout()

    async def _login(self) -> None:
        status, response = await self._soap.request_json(
            "POST", self.api.session_path, headers={"Authorization": f"Basic {self._basic_auth}"}
        )
        if status == 401:
            raise WrongLogin(
                f"vCenter {self._soap.address.display_name} rejects the login of "
                f'"{self._username}" at its REST endpoint: the user or password is wrong, or the '
                "account is locked"
            )
        if status in _NOT_SERVED_STATUSES:
            raise _ApiNotServed(f"POST {self.api.session_path}: HTTP {status}")
        key = self._unwrap_result(status, response, f"POST {self.api.session_path}")
        if not isinstance(key, str) or not key:
            # Before 7.0 U2, /api is an endpoint of another protocol; or a proxy sent a page.
            raise _ApiNotServed(f"POST {self.api.session_path}: the response has no session")
        self._session_key = key

    async def _logout(self) -> None:
        try:
            await self._soap.request_json(
                "DELETE",
                self.api.session_path,
                headers={_SESSION_HEADER: self._session_key},
                timeout_seconds=_LOGOUT_TIMEOUT_SECONDS,
            )
        except VCenterError as error:
            self._log.debug(
                "the REST session could not be ended; the server ends it when it is idle",
                error=error,
            )
        self._session_key = ""

    async def list_attached_tags(
        self, type_name: str, refs: Sequence[str]
    ) -> dict[str, tuple[str, ...]]:
        """The ids of the tags of each object that has any."""
        path = (
            f"{self.api.tagging_path}/tag-association"
            f"?{self.api.action_parameter}=list-attached-tags-on-objects"
        )
        tag_ids: dict[str, tuple[str, ...]] = {}
        for start in range(0, len(refs), _OBJECTS_PER_CALL):
            objects = [
                {"id": ref, "type": type_name} for ref in refs[start : start + _OBJECTS_PER_CALL]
            ]
            try:
                rows = await self._call("POST", path, {"object_ids": objects})
            except NotFound as error:
                # The call itself never results in 404. vCenter 7.0 before U2 has sessions under
                # /api, but no tags.
                raise _ApiNotServed(str(error)) from error
            for row in _require_list(rows):
                with self._report_undecodable("TagAssociation", "tag_ids"):
                    ref, ids = _require_text(row["object_id"], "id"), row.get("tag_ids") or []
                    if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):
                        raise TypeError("tag_ids is not a list of text")
                    tag_ids |= {ref: tuple(ids)} if ids else {}
        return tag_ids

    async def read_tags(self, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Name and category id of each tag that still exists."""
        responses = await gather_limited(ids, lambda id: self._read_or_none("tag", id))
        tags = dict[str, tuple[str, str]]()
        for id, tag in zip(ids, responses, strict=True):
            if tag is not None:
                with self._report_undecodable("Tag", "name, category_id", id):
                    tags[id] = _require_text(tag, "name"), _require_text(tag, "category_id")
        return tags

    async def read_categories(self, ids: Sequence[str]) -> dict[str, str]:
        """The name of each category that still exists."""
        responses = await gather_limited(ids, lambda id: self._read_or_none("category", id))
        names = dict[str, str]()
        for id, category in zip(ids, responses, strict=True):
            if category is not None:
                with self._report_undecodable("Category", "name", id):
                    names[id] = _require_text(category, "name")
        return names

    async def _read_or_none(self, resource: str, id: str) -> Any:
        """A tag or a category; None if it was deleted, or this user may not read it."""
        try:
            path = f"{self.api.tagging_path}/{resource}/{self.api.id_prefix}{quote(id, safe=':')}"
            return await self._call("GET", path)
        except (NotFound, ObjectForbidden):
            return None

    @contextmanager
    def _report_undecodable(self, type_name: str, path: str, id: str = "") -> Iterator[None]:
        """Leave out one tag, category or object of which the response has an unknown form."""
        try:
            yield
        except DECODE_ERRORS as error:
            self._soap.decode_errors.report(type_name, path, id, error)

    async def _call(self, verb: str, path: str, body: object = None) -> Any:
        headers = {_SESSION_HEADER: self._session_key}
        status, response = await self._soap.request_json(verb, path, body, headers)
        return self._unwrap_result(status, response, f"{verb} {path.partition('?')[0]}")

    def _unwrap_result(self, status: int, response: Any, call: str) -> Any:
        """The result in a response. An error status is raised as a VCenterError."""
        if status < 300:
            is_wrapped = self.api.wraps_result and isinstance(response, dict)
            return response.get("value") if is_wrapped else response
        error_type = _ERROR_TYPES.get(status) or (Unreachable if status >= 500 else Rejected)
        raise error_type(
            f"{call} at {self._soap.address.display_name}: HTTP {status}{_find_messages(response)}"
        )


def _require_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    raise Rejected("the REST endpoint's response about attached tags is not a list")


def _require_text(fields: Any, name: str) -> str:
    if isinstance(text := fields[name], str):
        return text
    raise TypeError(f"{name} is not text")


_ERROR_TYPES: dict[int, type[VCenterError]] = {
    401: NotAuthenticated,
    403: ObjectForbidden,
    404: NotFound,
    429: Busy,
    503: Unreachable,
}


def _find_messages(response: Any) -> str:
    """The messages of vCenter in the body of an error of either API."""
    value = response.get("value", response) if isinstance(response, dict) else None
    messages = value.get("messages") if isinstance(value, dict) else None
    texts = [
        str(message["default_message"])
        for message in (messages if isinstance(messages, list) else ())
        if isinstance(message, dict) and message.get("default_message")
    ]
    return f": {'; '.join(texts)}" if texts else ""
