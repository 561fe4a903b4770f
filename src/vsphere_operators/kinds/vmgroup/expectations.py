"""What this process did and what came of it: what a plan needs beside stored records and inventory. It ends with the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct

from .clone_state import Sent
from .model import Obstacle, Record, Trouble

FIRST_PAUSE_SECONDS = 20.0
LONGEST_PAUSE_SECONDS = 300.0
GLOW_SECONDS = 10.0
"""How long an effect that a task has reported may take to be seen in the inventory."""

MOST_LOSSES = 5
NO_FOLDER = ("", 0.0)
Effect = Literal["poweredOn", "poweredOff", "resized", "destroyed"]
Clock = Callable[[], float]


class Failure(Struct, frozen=True):
    """Something went wrong with a replica, and is tried again later."""

    trouble: Trouble
    times: int
    until: float


class Glow(Struct, frozen=True):
    """A task has ended well; its effect is on the way to us."""

    effect: Effect
    until: float
    before: str = ""
    """The VM's config_version when it began."""


class Memory:
    """Of one group. Replicas by recorded name, VMs by reference."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.generation = 0
        self.expected: set[str] = set()
        """Names of the records that were to be stored last."""
        self.losses = 0
        """How often in a row none of them was there afterwards."""
        self.sent: dict[str, Sent] = {}
        self.failures: dict[str, Failure] = {}
        self.glows: dict[str, Glow] = {}
        self.busy: set[str] = set()
        """VMs on which we have started something whose end we have not heard of."""
        self.folder: tuple[str, float] = NO_FOLDER
        """A folder that was made just now, and until when that counts although the inventory has not shown it."""

    def stored(self, before: Iterable[Record], after: Iterable[Record]) -> None:
        """These records are about to be stored: what is new in them is unsent, if and when it is seen stored."""
        attempts = {each.name: each.attempt for each in before}
        self.expected = {each.name for each in after}
        for each in after:
            if each.state == "Planned" and attempts.get(each.name) != each.attempt:
                self.sent[each.name] = Sent(attempt=each.attempt, outcome="unsent", at_seconds=self.clock())

    def check(self, records: Iterable[Record]) -> None:
        """Raise when what we store does not stay, again and again: the API server drops what its CRD does not know."""
        stays = not self.expected or any(each.name in self.expected for each in records)
        self.losses, self.expected = 0 if stays else self.losses + 1, set()
        if self.losses >= MOST_LOSSES:
            raise Obstacle(
                "CRDOutdated",
                "the API server does not keep status.replicas, so nothing is created: the CRD of VmGroup is older than this manager; "
                "apply the new one (make install, or kubectl apply -k config/crd)",
            )

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget replicas that are no more, and effects that must have been seen by now."""
        known, now = set(names), self.clock()
        self.glows = {ref: glow for ref, glow in self.glows.items() if glow.until > now}
        for table in (self.sent, self.failures):
            for name in [each for each in table if each not in known]:
                del table[name]

    def failed(self, name: str, trouble: Trouble) -> None:
        """Something went wrong: 20 s of rest, then 40, and so on."""
        before = self.failures.get(name)
        times = before.times + 1 if before else 1
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** (times - 1), LONGEST_PAUSE_SECONDS)
        self.failures[name] = Failure(trouble, times, self.clock() + pause)

    def worked(self, name: str) -> None:
        """Something went well."""
        self.failures.pop(name, None)

    def troubles(self) -> dict[str, Trouble]:
        """What rests now."""
        now = self.clock()
        return {name: each.trouble for name, each in self.failures.items() if each.until > now}

    def next_try_seconds(self) -> float | None:
        """When the first of those that rest is tried again."""
        now = self.clock()
        return min((each.until - now for each in self.failures.values() if each.until > now), default=None)

    def began(self, generation: int) -> None:
        """A look at the object; if the wish is another one, what failed under the old one is tried at once."""
        if generation != self.generation:
            self.failures.clear()
        self.generation = generation
