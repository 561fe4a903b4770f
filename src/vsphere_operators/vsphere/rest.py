"""Tags over vCenter's REST endpoint (vAPI): which are attached to objects, and their names.

    async with RestSession(soap, username, password, log) as rest:
        ids = await rest.list_attached_tags("HostSystem", ["host-12"])  # {"host-12": ("urn:...",)}

Why /rest and not the newer /api?  Every vCenter from 6.5 on serves /rest; /api has these calls from
7.0 U2 on, with other names of actions. A REST session is one more session on the server, so it is
open only within `async with`.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import quote

from .concurrency import gather_limited
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
from .transport import Log, SoapClient

SESSION_PATH = "/rest/com/vmware/cis/session"
TAGGING_PATH = "/rest/com/vmware/cis/tagging"
_SESSION_HEADER = "vmware-api-session-id"
# One call for 500 objects takes less than a second; a vCenter has at most 2,500 hosts.
_OBJECTS_PER_CALL = 500
_LOGOUT_TIMEOUT_SECONDS = 5.0


class RestSession:
    def __init__(self, soap: SoapClient, username: str, password: str, log: Log) -> None:
        self._soap, self._username, self._log = soap, username, log
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
            "POST", SESSION_PATH, headers={"Authorization": f"Basic {self._basic_auth}"}
        )
        if status == 401:
            raise WrongLogin(
                f"vCenter {self._soap.address.display_name} rejects the login of "
                f'"{self._username}" at its REST endpoint: the user or password is wrong, or the '
                "account is locked"
            )
        self._session_key = str(self._unwrap_value(status, response, "the REST login"))

    async def _logout(self) -> None:
        try:
            await self._soap.request_json(
                "DELETE",
                SESSION_PATH,
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
        path = f"{TAGGING_PATH}/tag-association?~action=list-attached-tags-on-objects"
        tag_ids: dict[str, tuple[str, ...]] = {}
        for start in range(0, len(refs), _OBJECTS_PER_CALL):
            objects = [
                {"id": ref, "type": type_name} for ref in refs[start : start + _OBJECTS_PER_CALL]
            ]
            with _reject_malformed("attached tags"):
                for row in await self._call("POST", path, {"object_ids": objects}) or ():
                    if row.get("tag_ids"):
                        tag_ids[str(row["object_id"]["id"])] = tuple(row["tag_ids"])
        return tag_ids

    async def read_tags(self, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Name and category id of each tag that still exists."""
        tags = await gather_limited(ids, lambda id: self._read_or_none("tag", id))
        with _reject_malformed("tags"):
            return {
                id: (str(tag["name"]), str(tag["category_id"]))
                for id, tag in zip(ids, tags, strict=True)
                if tag
            }

    async def read_categories(self, ids: Sequence[str]) -> dict[str, str]:
        """The name of each category that still exists."""
        categories = await gather_limited(ids, lambda id: self._read_or_none("category", id))
        with _reject_malformed("categories of tags"):
            return {
                id: str(category["name"])
                for id, category in zip(ids, categories, strict=True)
                if category
            }

    async def _read_or_none(self, resource: str, id: str) -> Any:
        """A tag or a category; None if it was deleted, or this user may not read it."""
        try:
            return await self._call("GET", f"{TAGGING_PATH}/{resource}/id:{quote(id, safe=':')}")
        except (NotFound, ObjectForbidden):
            return None

    async def _call(self, verb: str, path: str, body: object = None) -> Any:
        headers = {_SESSION_HEADER: self._session_key}
        status, response = await self._soap.request_json(verb, path, body, headers)
        return self._unwrap_value(status, response, f"{verb} {path.partition('?')[0]}")

    def _unwrap_value(self, status: int, response: Any, call: str) -> Any:
        """The value inside a response. An error status is raised as a VCenterError."""
        if status < 300:
            return response.get("value") if isinstance(response, dict) else response
        error_type = _ERROR_TYPES.get(status) or (Unreachable if status >= 500 else Rejected)
        raise error_type(
            f"{call} at {self._soap.address.display_name}: HTTP {status}{_find_messages(response)}"
        )


@contextmanager
def _reject_malformed(subject: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Rejected(
            f"the REST endpoint's response about {subject} has an unknown format: "
            f"{type(error).__name__}"
        ) from error


_ERROR_TYPES: dict[int, type[VCenterError]] = {
    401: NotAuthenticated,
    403: ObjectForbidden,
    404: NotFound,
    429: Busy,
    503: Unreachable,
}


def _find_messages(response: Any) -> str:
    """The messages of vCenter in the body of an error."""
    value = response.get("value") if isinstance(response, dict) else None
    messages = value.get("messages") if isinstance(value, dict) else None
    texts = [
        str(message["default_message"])
        for message in messages or ()
        if isinstance(message, dict) and message.get("default_message")
    ]
    return f": {'; '.join(texts)}" if texts else ""
