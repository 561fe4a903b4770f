"""The vSphere tags of hosts, in memory.

Why not through the inventory?  Tags are not properties: only the REST endpoint has them, and it
    does not push changes.
How many calls?  A login, one per 500 hosts, one per tag and category in use, and a logout. Names
    are read again each time, since tags and categories can be renamed.
When?  At the start, every 5 minutes, and soon after a host was added.
What if it fails?  The last known tags remain, and one warning gives the cause. Tags never make a
    host's status an error.
Which account?  The same user, by password. A SAML token or a certificate does not open a REST
    session here; tags are then left out, with one log line. A rejected password counts in the
    session's FailedLoginLimiter, and is tried again after half an hour, since the account may have
    been locked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from .credentials import Credentials, CredentialSource
from .faults import VCenterError, WrongLogin
from .inventory import Change, Inventory, Signal
from .log import Log
from .model import Host
from .polling import PollSchedule, changed_keys
from .rest import RestEndpoint, RestSession
from .session import Session
from .transport import SoapClient

_INTERVAL_SECONDS = 300.0
REJECTED_RETRY_SECONDS = 1800.0


class Tags:
    """The tags of all hosts of one vCenter."""

    def __init__(
        self,
        soap: SoapClient,
        session: Session,
        credentials: CredentialSource,
        inventory: Inventory,
        log: Log,
        *,
        interval_seconds: float = _INTERVAL_SECONDS,
        poll_schedule: PollSchedule | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session, self._credentials = session, credentials
        self.rest_endpoint = RestEndpoint(soap, log)
        self.inventory, self._log, self._clock = inventory, log, clock
        self.poll_schedule = poll_schedule or PollSchedule(interval_seconds)
        # The reference of a host that has other tags.
        self.changed: Signal[str] = Signal(log)
        self.by_ref: dict[str, tuple[str, ...]] = {}
        # Whether they were read, or are left out.
        self.loaded = False
        # References of hosts that have tags in a status from before a restart.
        self._kept: set[str] = set()
        self._rejected_credentials: Credentials | None = None
        self.rejected_at = 0.0
        self.problem: VCenterError | None = None
        self._last_message = ""

    def get(self, ref: str) -> tuple[str, ...]:
        """The tags of an object as `category:tag`, sorted."""
        return self.by_ref.get(ref, ())

    def get_or_keep(self, ref: str, last: Sequence[str]) -> tuple[str, ...]:
        """The tags of an object; until they are read for the first time, its last ones."""
        if self.loaded:
            return self.get(ref)
        if last:
            self._kept.add(ref)
        return tuple(last)

    async def run(self) -> NoReturn:
        if not self.inventory.hosts:
            await self.poll_schedule.wait_for_next()
        await self.poll_schedule.run(self.poll)

    def on_host_change(self, change: Change[Host]) -> None:
        if change.old is None:
            self.poll_schedule.trigger()
        elif change.new is None:
            self.by_ref.pop(change.old.ref, None)

    async def poll(self) -> None:
        """Read all tags. A failure is logged and kept in `problem`, not raised."""
        try:
            with self.poll_schedule.track_poll():
                await self.read()
        except VCenterError as error:
            self.problem = error
            self._log_once(
                f"tags cannot be read, keeping the last known ones: {error}", self._log.warning
            )

    async def read(self) -> None:
        credentials = await asyncio.to_thread(self._credentials.read)
        if not credentials.password:
            self._log_once(
                "tags are left out: they need a login with a password, and none is configured",
                self._log.info,
            )
            self._apply({})
            return
        # SOAP and REST logins count toward the same lockout of the account, so both obey the same
        # budget.
        await self._session.login()
        self._session.check_failed_login_limit(credentials)
        was_rejected = (
            credentials == self._rejected_credentials
            and self._clock() - self.rejected_at < REJECTED_RETRY_SECONDS
        )
        if was_rejected or not self.inventory.hosts:
            return
        try:
            self._apply(
                await self.rest_endpoint.call(
                    credentials.username,
                    credentials.password,
                    lambda rest: _read_tags(rest, list(self.inventory.hosts)),
                )
            )
        except WrongLogin:
            self._rejected_credentials, self.rejected_at = credentials, self._clock()
            self._session.count_failed_login(credentials)
            raise
        self.problem, self._last_message = None, ""

    def _apply(self, tags: dict[str, tuple[str, ...]]) -> None:
        # A host may have been removed while its tags were read.
        hosts, old = self.inventory.hosts, self.by_ref
        self.by_ref = {ref: names for ref, names in tags.items() if names and ref in hosts}
        removed, self._kept, self.loaded = self._kept - self.by_ref.keys(), set(), True
        for ref in (*changed_keys(old, self.by_ref), *sorted(removed)):
            self.changed.emit(ref)

    def _log_once(self, message: str, log: Callable[..., Any]) -> None:
        if message != self._last_message:
            log(message)
        self._last_message = message


async def _read_tags(rest: RestSession, refs: list[str]) -> dict[str, tuple[str, ...]]:
    """The tags of each object that has any, as `category:tag`."""
    attached = await rest.list_attached_tags("HostSystem", refs)
    tags = await rest.read_tags(sorted({id for ids in attached.values() for id in ids}))
    categories = await rest.read_categories(sorted({category for _, category in tags.values()}))
    names = {
        id: f"{categories[category]}:{name}"
        for id, (name, category) in tags.items()
        if category in categories
    }
    return {
        ref: tuple(sorted({names[id] for id in ids if id in names}))
        for ref, ids in attached.items()
    }
