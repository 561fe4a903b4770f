"""Tags over vCenter's REST endpoint (vAPI): what is attached to objects, and the names behind the ids.

    async with Rest(soap, username, password) as rest:
        attached = await rest.attached("HostSystem", ["host-12", "host-13"])       # {"host-12": ("urn:...:GLOBAL",)}

Why /rest and not the newer /api? Every vCenter from 6.5 on answers /rest; /api has these calls from 7.0 U2 on, and its actions are
spelt otherwise. A REST session is one more session on the server, so it lives from `async with` to its end and no longer.
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
    Denied,
    NotAuthenticated,
    NotFound,
    Rejected,
    Unreachable,
    VCenterError,
    WrongLogin,
)
from .transport import Log, SoapClient

SESSION_PATH = "/rest/com/vmware/cis/session"
TAGGING_PATH = "/rest/com/vmware/cis/tagging"
_SESSION_HEADER = "vmware-api-session-id"
# One call for 500 objects keeps the answer below a second; a vCenter has at most 2,500 hosts.
_OBJECTS_PER_CALL = 500
_LOGOUT_TIMEOUT_SECONDS = 5.0


class RestSession:
    """One REST session."""

    def __init__(self, soap: SoapClient, username: str, password: str, log: Log) -> None:
        self.soap, self.username, self.log = soap, username, log
        self._basic_auth = b64encode(f"{username}:{password}".encode()).decode()
        self.session_key = ""

    async def __aenter__(self) -> Self:
        login = asyncio.create_task(self.login(), name="vcenter REST login")
        try:
            await asyncio.shield(login)
        except asyncio.CancelledError:
            # A session whose key nobody knows cannot be ended: so the answer is waited for.
            await asyncio.wait([login], timeout=2 * _LOGOUT_TIMEOUT_SECONDS)
            if not login.cancel() and login.exception() is None:
                await self.logout()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.logout()

    async def login(self) -> None:
        """Open the session."""
        status, answer = await self.soap.request_json(
            "POST", SESSION_PATH, headers={"Authorization": f"Basic {self._basic_auth}"}
        )
        if status == 401:
            raise WrongLogin(
                f'vCenter {self.soap.address.display_name} refuses the login of "{self.username}" at its REST endpoint: '
                "user or password is wrong, or the account is locked"
            )
        self.session_key = str(self._unwrap_value(status, answer, "the REST login"))

    async def logout(self) -> None:
        """End the session."""
        try:
            await self.soap.request_json(
                "DELETE",
                SESSION_PATH,
                headers=self._session_headers(),
                timeout_seconds=_LOGOUT_TIMEOUT_SECONDS,
            )
        except VCenterError as failed:
            self.log.debug(
                "the REST session could not be ended; the server ends it when it has been idle",
                error=failed,
            )
        self.session_key = ""

    async def list_attached_tags(
        self, kind: str, refs: Sequence[str]
    ) -> dict[str, tuple[str, ...]]:
        """The ids of the tags on each object that has any."""
        starts = range(0, len(refs), _OBJECTS_PER_CALL)
        found: dict[str, tuple[str, ...]] = {}
        for start in starts:
            wanted = [{"id": ref, "type": kind} for ref in refs[start : start + _OBJECTS_PER_CALL]]
            path = f"{TAGGING_PATH}/tag-association?~action=list-attached-tags-on-objects"
            with _reject_malformed("which tags are attached"):
                for row in await self.call("POST", path, {"object_ids": wanted}) or ():
                    if row.get("tag_ids"):
                        found[str(row["object_id"]["id"])] = tuple(row["tag_ids"])
        return found

    async def read_tags(self, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Name and category's id of each tag that still exists."""
        answers = await gather_limited(ids, lambda id: self.read_or_none("tag", id))
        with _reject_malformed("the tags"):
            return {
                id: (str(tag["name"]), str(tag["category_id"]))
                for id, tag in zip(ids, answers, strict=True)
                if tag
            }

    async def read_categories(self, ids: Sequence[str]) -> dict[str, str]:
        """The name of each category that still exists."""
        answers = await gather_limited(ids, lambda id: self.read_or_none("category", id))
        with _reject_malformed("the categories of tags"):
            return {
                id: str(category["name"])
                for id, category in zip(ids, answers, strict=True)
                if category
            }

    async def read_or_none(self, what: str, id: str) -> Any:
        """A tag or a category; None when it is gone, or not for our eyes."""
        try:
            return await self.call("GET", f"{TAGGING_PATH}/{what}/id:{quote(id, safe=':')}")
        except (NotFound, Forbidden):
            return None

    async def call(self, verb: str, path: str, body: object = None) -> Any:
        """One call within the session."""
        status, answer = await self.soap.request_json(verb, path, body, self._session_headers())
        return self._unwrap_value(status, answer, f"{verb} {path.partition('?')[0]}")

    def _session_headers(self) -> dict[str, str]:
        """What says who we are."""
        return {_SESSION_HEADER: self.session_key}

    def _unwrap_value(self, status: int, answer: Any, doing: str) -> Any:
        """The value inside an answer, or what its status means."""
        if status < 300:
            return answer.get("value") if isinstance(answer, dict) else answer
        raise _error_type_for_status(status)(
            f"{doing} at {self.soap.address.display_name}: HTTP {status}{find_messages(answer)}"
        )


@contextmanager
def _reject_malformed(what: str) -> Iterator[None]:
    """Around the reading of an answer: one of another form is said to be one."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Rejected(
            f"the REST endpoint's answer about {what} has a form that nobody here knows: {type(error).__name__}"
        ) from error


class Forbidden(Denied):
    """The user may not read this one thing."""


def _error_type_for_status(status: int) -> type[VCenterError]:
    """Our error for a status."""
    known: dict[int, type[VCenterError]] = {
        401: NotAuthenticated,
        403: Forbidden,
        404: NotFound,
        429: Busy,
        503: Unreachable,
    }
    return known.get(status) or (Unreachable if status >= 500 else Rejected)


def find_messages(answer: Any) -> str:
    """What vCenter itself says in an error's body."""
    value = answer.get("value") if isinstance(answer, dict) else None
    messages = value.get("messages") if isinstance(value, dict) else None
    said = [
        str(message["default_message"])
        for message in messages or ()
        if isinstance(message, dict) and message.get("default_message")
    ]
    return f": {'; '.join(said)}" if said else ""
