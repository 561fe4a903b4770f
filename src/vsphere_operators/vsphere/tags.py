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
from .polling import Rhythm
from .rest import Rest
from .session import Session
from .transport import Log, Soap

INTERVAL_SECONDS = 300.0
SAME_AGAIN_SECONDS = 1800.0
Listener = Callable[[str], None]


class Tags:
    """What is tagged how; `of` answers from memory."""

    def __init__(
        self,
        soap: Soap,
        session: Session,
        credentials: CredentialSource,
        inventory: Inventory,
        log: Log,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        rhythm: Rhythm | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.soap, self.session, self.credentials, self.inventory, self.log = soap, session, credentials, inventory, log
        self.clock = clock
        self.rhythm = rhythm or Rhythm(interval_seconds)
        self.listeners: list[Listener] = []
        self.known: dict[str, tuple[str, ...]] = {}
        self.refused: Credentials | None = None
        self.refused_at = 0.0
        self.problem: VCenterError | None = None
        self.said = ""

    def of(self, ref: str) -> tuple[str, ...]:
        """The tags of an object as `category:tag`, sorted."""
        return self.known.get(ref, ())

    async def run(self) -> NoReturn:
        """Look again and again, until cancelled."""
        with self.inventory.heard_by(self.heard):
            if not self.inventory.hosts:
                await self.rhythm.next()
            await self.rhythm.keep(self.look)

    def heard(self, change: Change) -> None:
        """A host that enters may have tags; one that leaves has none."""
        if isinstance(change.new, Host) and change.old is None:
            self.rhythm.soon()
        if isinstance(change.old, Host) and change.new is None:
            self.known.pop(change.old.ref, None)

    async def look(self) -> None:
        """Read all tags; a failure is told and remembered, never raised."""
        try:
            with self.rhythm.looking():
                await self.read()
        except VCenterError as error:
            self.problem = error
            self.say(f"tags cannot be read, the last known ones stay: {error}", self.log.warning)

    async def read(self) -> None:
        """Log in, read, log out."""
        credentials = await asyncio.to_thread(self.credentials.read)
        if not credentials.password:
            self.say("tags are left out: they need a login with a password, and there is none", self.log.info)
            return
        # Both ways to log in count for the same lock of the account, so both obey the same budget.
        await self.session.login()
        self.session.admit(credentials)
        if self.was_refused(credentials) or not self.inventory.hosts:
            return
        try:
            self.learn(await self.tags_by(credentials, list(self.inventory.hosts)))
        except WrongLogin:
            self.refused, self.refused_at = credentials, self.clock()
            self.session.failed_login(credentials)
            raise
        self.problem, self.said = None, ""

    def was_refused(self, credentials: Credentials) -> bool:
        """Whether these were refused not long ago."""
        return credentials == self.refused and self.clock() - self.refused_at < SAME_AGAIN_SECONDS

    async def tags_by(self, credentials: Credentials, refs: list[str]) -> dict[str, tuple[str, ...]]:
        """`category:tag` for each host that has tags."""
        async with Rest(self.soap, credentials.username, credentials.password, self.log) as rest:
            attached = await rest.attached("HostSystem", refs)
            tags = await rest.tags(sorted({id for ids in attached.values() for id in ids}))
            categories = await rest.categories(sorted({category for _, category in tags.values()}))
        words = {id: f"{categories[category]}:{name}" for id, (name, category) in tags.items() if category in categories}
        return {ref: tuple(sorted({words[id] for id in ids if id in words})) for ref, ids in attached.items()}

    def learn(self, found: dict[str, tuple[str, ...]]) -> None:
        """Take what was read, but for hosts that left meanwhile, and tell whose tags differ."""
        old, self.known = self.known, {ref: words for ref, words in found.items() if words and ref in self.inventory.hosts}
        for ref in {**old, **self.known}:
            if old.get(ref) != self.known.get(ref):
                for listener in self.listeners:
                    listener(ref)

    def say(self, words: str, how: Callable[..., Any]) -> None:
        """Tell people once, not at every look."""
        if words != self.said:
            how(words)
        self.said = words
