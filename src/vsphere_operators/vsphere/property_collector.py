"""Keeps the inventory true: loads it, then waits for updates for ever, on one call that is always open.

    open a watch -> read everything, page by page -> exchange the inventory -> wait -> apply -> wait ...
       ^               vCenter forgot the watch, or our version of it                   |
       +--------------------------------------------------------------------------------+

What ends it?  Being cancelled, or an error that is somebody else's to mend: the session is gone, or there is no answer. Whoever
    calls `follow` again has everything read anew, and hears only of what differs.
How is a call that hangs noticed?  The server promises to answer within 15 s, changes or not. After 35 s it is Unreachable.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NoReturn, Protocol

from .faults import Denied, NotAuthenticated, VCenterError
from .inventory import Inventory, Reload
from .properties import ATTRIBUTES, to_read_again
from .server_view import Limits, Watch
from .transport import Log, Soap
from .updates import ObjectUpdate

LOST = ("InvalidCollectorVersion", "ManagedObjectNotFound", "RequestCanceled")
"""Faults of WaitForUpdatesEx that say: start again. The last is the answer to a collector that is destroyed under an open call."""


class Living(Protocol):
    """What has to be known of a session."""

    @property
    def logged_in(self) -> bool: ...  # noqa: D102


class UpdateMeter(Protocol):
    """Who counts updates."""

    def updated(self, type_name: str, kind: str, count: int) -> None:
        """Updates came: of objects of a type, which entered, were modified or left."""
        ...


class Collector:
    """Feeds one inventory from one vCenter. `loaded` is called whenever everything has been read, `answered` with each answer after."""

    def __init__(
        self,
        soap: Soap,
        session: Living,
        inventory: Inventory,
        log: Log,
        meter: UpdateMeter,
        *,
        loaded: Callable[[], None] = lambda: None,
        answered: Callable[[], None] = lambda: None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.soap, self.session, self.inventory, self.log, self.meter = soap, session, inventory, log, meter
        self.loaded, self.answered, self.limits, self.clock = loaded, answered, limits or Limits(), clock
        self.heard_at = clock()
        """When the last answer came; before the first one, when we began to hope for it."""
        self.answers = 0
        """Since everything was read."""
        self.lost_at = -math.inf
        self.asked: set[str] = set()
        """Keys of custom attributes whose names were asked for; some have none."""

    async def follow(self) -> NoReturn:
        """Load, then follow for ever; starts again by itself when vCenter forgot what it was to watch."""
        while True:
            try:
                await self.watch()
            except VCenterError as error:
                # Lost again so soon: whoever calls us knows how long to wait.
                soon = self.clock() - self.lost_at < self.limits.reload_seconds
                self.lost_at = self.clock()
                if error.fault not in LOST or not self.answers or soon:
                    raise
                self.log.warning("vCenter no longer watches the inventory for us; reading everything again", error=error)

    async def watch(self) -> NoReturn:
        """One watch, from its opening to its end."""
        watch, dead, self.answers = Watch(self.soap, self.limits, self.log), False, 0
        try:
            await watch.open()
            version = await self.load(watch)
            while True:
                version = await self.step(watch, version)
        except NotAuthenticated:
            dead = True  # and with the session all that was watched
            raise
        finally:
            if self.session.logged_in and not dead:
                await watch.close()

    async def load(self, watch: Watch) -> str:
        """Read everything, page by page, then exchange the inventory at once; returns the version from which on to follow."""
        reload, version, truncated, in_parts = Reload(self.inventory), "", True, list[ObjectUpdate]()
        while truncated:
            answer = await watch.wait(version)
            self.heard_at = self.clock()
            if answer is None:
                raise Denied(
                    f"vCenter {self.soap.address.title} shows nothing of its inventory, not even the root folder. "
                    "Give this account the Read-only role on the root folder, with 'Propagate to children'."
                )
            version, truncated = answer.version, answer.truncated
            reload.add(answer.updates)
            in_parts += [update for update in answer.updates if update.partial]
            self.count(answer.updates)
        reload.commit()
        await self.complete(watch, in_parts)
        self.loaded()
        return version

    async def step(self, watch: Watch, version: str) -> str:
        """One answer."""
        answer = await watch.wait(version)
        self.heard_at = self.clock()
        self.answers += 1
        self.answered()
        if answer is None:
            return version
        self.inventory.apply(answer.updates)
        self.count(answer.updates)
        await self.complete(watch, answer.updates)
        return answer.version

    async def complete(self, watch: Watch, updates: Iterable[ObjectUpdate]) -> None:
        """Read what the updates left open: properties that came in parts, and names of new custom attributes."""
        wanted = to_read_again(update for update in updates if update.kind != "leave")
        if watch.attributes and not self.inventory.nameless <= self.asked:
            self.asked |= self.inventory.nameless
            wanted[ATTRIBUTES, watch.attributes] = {"field"}
        if wanted:
            self.inventory.apply(await watch.read(wanted))

    def count(self, updates: Iterable[ObjectUpdate]) -> None:
        """Tell the meter."""
        for (type_name, kind), count in Counter((update.type, update.kind) for update in updates).items():
            self.meter.updated(type_name, kind, count)
