"""The vSphere tags of hosts, in memory.

Why not read through the inventory?  Tags are no properties: no collector tells of them, only the REST endpoint does, and it does not push.
How many calls?  A login, one for 500 hosts, one for each tag and category in use, a logout. Names are read anew at each look, since both
    can be renamed.
When?  At the start, every 5 minutes, and soon after a host has entered.
What if it fails?  The last known tags stay, and one warning says why. A host never becomes an error for its tags.
Who logs in?  The same user, by password. A token or a certificate opens no REST session here; then one line says that tags are left out.
    A refused password counts as a login of the session, and the same is tried again after half an hour: the account may have been locked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NoReturn

from .credentials import Credentials, CredentialSource
from .faults import VCenterError, WrongLogin
from .inventory import Change, Inventory
from .model import Host
from .polling import PollSchedule
from .rest import RestSession
from .session import Session
from .signal import Signal
from .transport import Log, SoapClient

INTERVAL_SECONDS = 300.0
REJECTED_RETRY_SECONDS = 1800.0


class Tags:
    """What is tagged how; `of` answers from memory."""

    def __init__(
        self,
        soap: SoapClient,
        session: Session,
        credentials: CredentialSource,
        inventory: Inventory,
        log: Log,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        poll_schedule: PollSchedule | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.soap, self.session, self.credentials, self.inventory, self.log = (
            soap,
            session,
            credentials,
            inventory,
            log,
        )
        self.clock = clock
        self.poll_schedule = poll_schedule or PollSchedule(interval_seconds)
        self.changed: Signal[str] = Signal(log)
        """A host has other tags: its reference."""
        self.by_ref: dict[str, tuple[str, ...]] = {}
        self._rejected_credentials: Credentials | None = None
        self.rejected_at = 0.0
        self.problem: VCenterError | None = None
        self._last_message = ""

    def get(self, ref: str) -> tuple[str, ...]:
        """The tags of an object as `category:tag`, sorted."""
        return self.by_ref.get(ref, ())

    async def run(self) -> NoReturn:
        """Look again and again, until cancelled."""
        if not self.inventory.hosts:
            await self.poll_schedule.wait_for_next()
        await self.poll_schedule.run(self.poll)

    def on_host_change(self, change: Change) -> None:
        """A host that enters may have tags; one that leaves has none."""
        if isinstance(change.new, Host) and change.old is None:
            self.poll_schedule.trigger()
        if isinstance(change.old, Host) and change.new is None:
            self.by_ref.pop(change.old.ref, None)

    async def poll(self) -> None:
        """Read all tags; a failure is told and remembered, never raised."""
        try:
            with self.poll_schedule.track_poll():
                await self.read()
        except VCenterError as error:
            self.problem = error
            self._log_once(
                f"tags cannot be read, the last known ones stay: {error}", self.log.warning
            )

    async def read(self) -> None:
        """Log in, read, log out."""
        credentials = await asyncio.to_thread(self.credentials.read)
        if not credentials.password:
            self._log_once(
                "tags are left out: they need a login with a password, and there is none",
                self.log.info,
            )
            return
        # Both ways to log in count for the same lock of the account, so both obey the same budget.
        await self.session.login()
        self.session.check_login_budget(credentials)
        if self._was_rejected(credentials) or not self.inventory.hosts:
            return
        try:
            self.apply(await self.read_tags(credentials, list(self.inventory.hosts)))
        except WrongLogin:
            self._rejected_credentials, self.rejected_at = credentials, self.clock()
            self.session.count_failed_login(credentials)
            raise
        self.problem, self._last_message = None, ""

    def _was_rejected(self, credentials: Credentials) -> bool:
        """Whether these were refused not long ago."""
        return (
            credentials == self._rejected_credentials
            and self.clock() - self.rejected_at < REJECTED_RETRY_SECONDS
        )

    async def read_tags(
        self, credentials: Credentials, refs: list[str]
    ) -> dict[str, tuple[str, ...]]:
        """`category:tag` for each host that has tags."""
        async with RestSession(
            self.soap, credentials.username, credentials.password, self.log
        ) as rest:
            attached = await rest.list_attached_tags("HostSystem", refs)
            tags = await rest.read_tags(sorted({id for ids in attached.values() for id in ids}))
            categories = await rest.read_categories(
                sorted({category for _, category in tags.values()})
            )
        words = {
            id: f"{categories[category]}:{name}"
            for id, (name, category) in tags.items()
            if category in categories
        }
        return {
            ref: tuple(sorted({words[id] for id in ids if id in words}))
            for ref, ids in attached.items()
        }

    def apply(self, found: dict[str, tuple[str, ...]]) -> None:
        """Take what was read, but for hosts that left meanwhile, and tell whose tags differ."""
        old, self.by_ref = (
            self.by_ref,
            {ref: words for ref, words in found.items() if words and ref in self.inventory.hosts},
        )
        for ref in {**old, **self.by_ref}:
            if old.get(ref) != self.by_ref.get(ref):
                self.changed.emit(ref)

    def _log_once(self, words: str, how: Callable[..., Any]) -> None:
        """Tell people once, not at every look."""
        if words != self._last_message:
            how(words)
        self._last_message = words
