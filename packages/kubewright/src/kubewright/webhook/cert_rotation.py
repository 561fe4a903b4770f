"""Keeps a CA of our own in a Secret, its certificates in every caBundle, and a serving certificate of it in our hands.

Questions and answers:

Who makes the CA?  Whoever comes first. `create` of an existing Secret fails, every other write names the resourceVersion that was read;
    so of several replicas one wins, and the others read what it wrote.
Why is the Secret read again before a caBundle is written?  A replica that was stopped for a while must not put an old bundle over a new
    one. It reads the configuration, then the Secret, then writes if the configuration is still the one it read: what came in between shows.
When does a new CA begin to sign?  When each caBundle was seen to hold it, by us, at every look for `settle_seconds`.
What if the Secret is deleted?  It is made again, from memory: what API servers trust stays true.
What if a configuration is not there?  Then nobody asks us through it. It gets its caBundle when it comes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ..builtin import Secret
from ..client import Client
from ..errors import AlreadyExists, Conflict, Forbidden, KubewrightError, NotFound, cut
from ..log import Log
from ..meta import Key, ObjectMeta
from ..tls import Certificate
from .ca import Authorities, Pair, advanced, new_serving
from .ca_bundle import Target, can_carry, patch_for
from .options import Times

# The first pause after somebody else was faster, and after a failure; each doubles until a look succeeds.
RACE_SECONDS = 0.05
FAILURE_SECONDS = 0.5


@dataclass(frozen=True)
class Known:
    """The CAs, and the Secret's resourceVersion that they were read at."""

    authorities: Authorities
    revision: str


class Raced(Exception):
    """Somebody else wrote meanwhile: look again."""


def wall_clock() -> datetime:
    """Certificates go by the wall clock, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


class Rotation:
    """One replica's part in it; all replicas run the same."""

    def __init__(
        self,
        client: Client,
        certificate: Certificate,
        *,
        name: str,
        secret: Key,
        hosts: Sequence[str],
        targets: Sequence[Target],
        times: Times | None = None,
        clock: Callable[[], datetime] = wall_clock,
    ) -> None:
        """`client` is one whose writes need no lease: every replica serves."""
        self.client, self.certificate = client, certificate
        self.name, self.secret, self.hosts, self.targets = name, secret, tuple(hosts), tuple(targets)
        self.times, self.clock = times or Times(), clock
        self.log = Log("webhook").bind(secret=str(secret))
        self.known: Known | None = None
        self.serving: Pair | None = None
        self.signed_by = b""
        self.checked: dict[Target, str] = {}
        """The resourceVersion at which each target was last seen with the present bundle."""
        self.everywhere_since: float | None = None
        self.said = ""

    async def run(self) -> None:
        """Look every few seconds, until cancelled."""
        failures = 0
        while True:
            try:
                await self.look()
                failures, pause = 0, self.times.look_seconds
            except (Raced, Conflict):
                failures, pause = failures + 1, RACE_SECONDS * 2 ** min(failures, 16)
            except Exception as error:
                self.explain(error)
                failures, pause = failures + 1, FAILURE_SECONDS * 2 ** min(failures, 16)
            await asyncio.sleep(min(pause, self.times.look_seconds) * random.uniform(0.5, 1.0))

    async def look(self) -> None:
        """One look at everything: bundles first, so that a CA signs only when what was just read says that it is trusted."""
        if self.known is not None:
            # The API server may be out of our reach for long; it may still reach us.
            await self.present(self.known.authorities.current)
        known = await self.read() or await self.create()
        await self.present(known.authorities.current)
        problem = await self.spread(known)
        wanted = advanced(known.authorities, self.clock(), self.times, self.name, everywhere=self.settled())
        if wanted != known.authorities:
            known = await self.write(known.revision, wanted)
            await self.present(known.authorities.current)
            problem = await self.spread(known)
        if problem is not None:
            raise problem
        self.said = ""

    async def read(self) -> Known | None:
        """What the Secret holds, None where there is no Secret; one that is empty or damaged is filled."""
        try:
            found = await self.client.get(Secret, self.secret)
        except NotFound:
            return None
        authorities = Authorities.of(found.data)
        if authorities is None:
            self.log.warning("the Secret holds no usable CA; making one")
            return await self.write(found.metadata.resourceVersion, self.fresh())
        return self.learn(Known(authorities, found.metadata.resourceVersion))

    def fresh(self) -> Authorities:
        """The CAs that we know of, or a new one."""
        known = self.known.authorities if self.known is not None else None
        return advanced(known, self.clock(), self.times, self.name, everywhere=False)

    async def create(self) -> Known:
        """Make the Secret, unless somebody is faster."""
        authorities = self.fresh()
        data = {key: value for key, value in authorities.data().items() if value is not None}
        metadata = ObjectMeta(name=self.secret.name, namespace=self.secret.namespace)
        try:
            made = await self.client.create(Secret(metadata=metadata, data=data, type="Opaque"))
        except AlreadyExists:
            raise Raced from None
        self.log.info("made the Secret with the CA of the webhooks", expires=authorities.current.expires_at)
        return self.learn(Known(authorities, made.metadata.resourceVersion))

    async def write(self, revision: str, wanted: Authorities) -> Known:
        """Write the next step into the Secret, if nobody wrote since."""
        patch = {"metadata": {"resourceVersion": revision}, "data": wanted.data()}
        written = await self.client.patch(Secret, self.secret, patch)
        self.log.info(
            "the CA of the webhooks moved on",
            expires=wanted.current.expires_at,
            next=wanted.next.expires_at if wanted.next else None,
            previous=wanted.previous.expires_at if wanted.previous else None,
        )
        return self.learn(Known(wanted, written.metadata.resourceVersion))

    def learn(self, known: Known) -> Known:
        """Take in what the Secret holds; another bundle has to be seen everywhere anew."""
        if self.known is None or self.known.authorities.bundle != known.authorities.bundle:
            self.checked.clear()
            self.everywhere_since = None
        self.known = known
        return known

    async def present(self, authority: Pair) -> None:
        """Have a serving certificate of this CA, made anew before it expires."""
        now = self.clock()
        if authority.over(now):
            return
        if self.serving is None or self.signed_by != authority.certificate or self.serving.due(now):
            serving = new_serving(authority, self.hosts, now, self.times)
            await asyncio.to_thread(self.certificate.use, serving.certificate + serving.key)
            self.serving, self.signed_by = serving, authority.certificate
            self.log.info("serving with a new certificate", expires=serving.expires_at)

    async def spread(self, known: Known) -> KubewrightError | None:
        """See to it that every target carries the bundle, and since when all do. One that cannot be reached does not hold up the others."""
        problem: KubewrightError | None = None
        for target in self.targets:
            try:
                await self.see_to(target, known)
            except Conflict:
                raise Raced from None
            except KubewrightError as error:
                problem = error
                self.everywhere_since = None
        if problem is None and self.everywhere_since is None:
            self.everywhere_since = asyncio.get_running_loop().time()
        return problem

    async def see_to(self, target: Target, known: Known) -> None:
        """Put the bundle in where it is not."""
        try:
            revision = (await self.client.get(target.metadata, target.key)).metadata.resourceVersion
            if self.checked.get(target) == revision:
                return
            found = await self.client.get(target.kind, target.key)
        except NotFound:
            self.checked.pop(target, None)
            return
        if not can_carry(found):
            self.log.warning(
                "nothing in it leads to a webhook, so nothing is converted or asked: apply the generated manifests", at=str(target)
            )
        patch = patch_for(found, known.authorities.bundle)
        if patch is not None:
            if (await self.client.get(Secret, self.secret)).metadata.resourceVersion != known.revision:
                raise Raced
            self.everywhere_since = None
            found = await self.client.patch(target.kind, target.key, patch)
            self.log.info("put the CA into a caBundle", target=str(target))
        self.checked[target] = found.metadata.resourceVersion

    def settled(self) -> bool:
        """Whether the bundle has been everywhere for long enough."""
        now = asyncio.get_running_loop().time()
        return self.everywhere_since is not None and now - self.everywhere_since >= self.times.settle_seconds

    def explain(self, error: Exception) -> None:
        """Say once what is wrong; what nobody foresaw comes with its trace."""
        words = f"the certificates of the webhooks cannot be looked after: {cut(str(error))}"
        if isinstance(error, Forbidden):
            words += ". Grant the generated roles: kubectl apply -k config/rbac"
        if words != self.said:
            self.log.error(words, error=None if isinstance(error, KubewrightError) else error)
        self.said = words

    def expires_at_seconds(self) -> float:
        """When the serving certificate expires, in seconds since 1970; 0 where there is none."""
        return self.serving.expires_at.timestamp() if self.serving is not None else 0.0

    @property
    def problem(self) -> str:
        """Why nobody can connect, "" where they can."""
        if self.serving is None:
            return self.said or "there is no certificate yet"
        return f"the certificate has expired. {self.said}".strip() if self.serving.over(self.clock()) else ""
