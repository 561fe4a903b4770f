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
from datetime import UTC, datetime, timedelta

from ..builtin import Secret
from ..client import Client
from ..errors import AlreadyExists, Conflict, Forbidden, KubewrightError, NotFound, redact
from ..kind import Key, ObjectMeta
from ..log import Log
from ..tls import ServingCertificate
from ..x509 import KeyPair, issue_serving_certificate
from .ca import CertificateAuthorities, rotate
from .ca_bundle import CaBundleTarget, build_ca_bundle_patch, has_webhook_client
from .options import CertificateTimings

# The first pause after somebody else was faster, and after a failure; each doubles until a look succeeds.
_CONFLICT_BACKOFF_SECONDS = 0.05
_FAILURE_BACKOFF_SECONDS = 0.5


@dataclass(frozen=True)
class StoredCa:
    """The CAs, and the Secret's resourceVersion that they were read at."""

    authorities: CertificateAuthorities
    resource_version: str


class ConcurrentWrite(Exception):
    """Somebody else wrote meanwhile: look again."""


def _wall_clock() -> datetime:
    """Certificates go by the wall clock, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


class CertRotator:
    """One replica's part in it; all replicas run the same."""

    def __init__(
        self,
        client: Client,
        certificate: ServingCertificate,
        *,
        name: str,
        secret: Key,
        hosts: Sequence[str],
        targets: Sequence[CaBundleTarget],
        timings: CertificateTimings | None = None,
        clock: Callable[[], datetime] = _wall_clock,
    ) -> None:
        """`client` is one whose writes need no lease: every replica serves."""
        self.client, self.certificate = client, certificate
        self.name, self.secret, self.hosts, self.targets = (
            name,
            secret,
            tuple(hosts),
            tuple(targets),
        )
        self.timings, self.clock = timings or CertificateTimings(), clock
        self.log = Log("webhook").bind(secret=str(secret))
        self.stored: StoredCa | None = None
        self.serving_certificate: KeyPair | None = None
        self.issuer_certificate = b""
        self.verified_versions: dict[CaBundleTarget, str] = {}
        """The resourceVersion at which each target was last seen with the present bundle."""
        self.propagated_since: float | None = None
        self.last_error = ""

    async def run(self) -> None:
        """Look every few seconds, until cancelled."""
        failures = 0
        while True:
            try:
                await self.reconcile()
                failures, pause = 0, self.timings.check_interval_seconds
            except (ConcurrentWrite, Conflict):
                failures, pause = failures + 1, _CONFLICT_BACKOFF_SECONDS * 2 ** min(failures, 16)
            except Exception as error:
                self.log_error(error)
                failures, pause = failures + 1, _FAILURE_BACKOFF_SECONDS * 2 ** min(failures, 16)
            await asyncio.sleep(
                min(pause, self.timings.check_interval_seconds) * random.uniform(0.5, 1.0)
            )

    async def reconcile(self) -> None:
        """One look at everything: bundles first, so that a CA signs only when what was just read says that it is trusted."""
        if self.stored is not None:
            # The API server may be out of our reach for long; it may still reach us.
            await self._renew_serving_certificate(self.stored.authorities.current)
        known = await self.read_secret() or await self._create_secret()
        await self._renew_serving_certificate(known.authorities.current)
        problem = await self._propagate_bundle(known)
        wanted = rotate(
            known.authorities,
            self.clock(),
            self.timings,
            self.name,
            propagated=self._is_propagated(),
        )
        if wanted != known.authorities:
            known = await self._update_secret(known.resource_version, wanted)
            await self._renew_serving_certificate(known.authorities.current)
            problem = await self._propagate_bundle(known)
        if problem is not None:
            raise problem
        self.last_error = ""

    async def read_secret(self) -> StoredCa | None:
        """What the Secret holds, None where there is no Secret; one that is empty or damaged is filled."""
        try:
            found = await self.client.get(Secret, self.secret)
        except NotFound:
            return None
        authorities = CertificateAuthorities.from_secret_data(found.data)
        if authorities is None:
            self.log.warning("the Secret holds no usable CA; making one")
            return await self._update_secret(
                found.metadata.resourceVersion, self._restore_or_create_ca()
            )
        return self._apply_stored(StoredCa(authorities, found.metadata.resourceVersion))

    def _restore_or_create_ca(self) -> CertificateAuthorities:
        """The CAs that we know of, or a new one."""
        known = self.stored.authorities if self.stored is not None else None
        return rotate(known, self.clock(), self.timings, self.name, propagated=False)

    async def _create_secret(self) -> StoredCa:
        """Make the Secret, unless somebody is faster."""
        authorities = self._restore_or_create_ca()
        data = {
            key: value for key, value in authorities.to_secret_data().items() if value is not None
        }
        metadata = ObjectMeta(name=self.secret.name, namespace=self.secret.namespace)
        try:
            made = await self.client.create(Secret(metadata=metadata, data=data, type="Opaque"))
        except AlreadyExists:
            raise ConcurrentWrite from None
        self.log.info(
            "made the Secret with the CA of the webhooks", expires=authorities.current.expires_at
        )
        return self._apply_stored(StoredCa(authorities, made.metadata.resourceVersion))

    async def _update_secret(self, revision: str, wanted: CertificateAuthorities) -> StoredCa:
        """Write the next step into the Secret, if nobody wrote since."""
        patch = {"metadata": {"resourceVersion": revision}, "data": wanted.to_secret_data()}
        written = await self.client.patch(Secret, self.secret, patch)
        self.log.info(
            "the CA of the webhooks moved on",
            expires=wanted.current.expires_at,
            next=wanted.next.expires_at if wanted.next else None,
            previous=wanted.previous.expires_at if wanted.previous else None,
        )
        return self._apply_stored(StoredCa(wanted, written.metadata.resourceVersion))

    def _apply_stored(self, known: StoredCa) -> StoredCa:
        """Take in what the Secret holds; another bundle has to be seen everywhere anew."""
        if self.stored is None or self.stored.authorities.bundle != known.authorities.bundle:
            self.verified_versions.clear()
            self.propagated_since = None
        self.stored = known
        return known

    async def _renew_serving_certificate(self, authority: KeyPair) -> None:
        """Have a serving certificate of this CA, made anew before it expires."""
        now = self.clock()
        if authority.is_expired(now):
            return
        if (
            self.serving_certificate is None
            or self.issuer_certificate != authority.certificate
            or self.serving_certificate.is_renewal_due(now)
        ):
            lifetime = timedelta(seconds=self.timings.serving_lifetime_seconds)
            serving = issue_serving_certificate(authority, self.hosts, now, lifetime)
            await asyncio.to_thread(self.certificate.load_pem, serving.certificate + serving.key)
            self.serving_certificate, self.issuer_certificate = serving, authority.certificate
            self.log.info("serving with a new certificate", expires=serving.expires_at)

    async def _propagate_bundle(self, known: StoredCa) -> KubewrightError | None:
        """See to it that every target carries the bundle, and since when all do. One that cannot be reached does not hold up the others."""
        problem: KubewrightError | None = None
        for target in self.targets:
            try:
                await self._update_target(target, known)
            except Conflict:
                raise ConcurrentWrite from None
            except KubewrightError as error:
                problem = error
                self.propagated_since = None
        if problem is None and self.propagated_since is None:
            self.propagated_since = asyncio.get_running_loop().time()
        return problem

    async def _update_target(self, target: CaBundleTarget, known: StoredCa) -> None:
        """Put the bundle in where it is not."""
        try:
            revision = (
                await self.client.get(target.metadata_kind, target.key)
            ).metadata.resourceVersion
            if self.verified_versions.get(target) == revision:
                return
            found = await self.client.get(target.kind, target.key)
        except NotFound:
            self.verified_versions.pop(target, None)
            return
        if not has_webhook_client(found):
            self.log.warning(
                "nothing in it leads to a webhook, so nothing is converted or asked: apply the generated manifests",
                at=str(target),
            )
        patch = build_ca_bundle_patch(found, known.authorities.bundle)
        if patch is not None:
            if (
                await self.client.get(Secret, self.secret)
            ).metadata.resourceVersion != known.resource_version:
                raise ConcurrentWrite
            self.propagated_since = None
            found = await self.client.patch(target.kind, target.key, patch)
            self.log.info("put the CA into a caBundle", target=str(target))
        self.verified_versions[target] = found.metadata.resourceVersion

    def _is_propagated(self) -> bool:
        """Whether the bundle has been everywhere for long enough."""
        now = asyncio.get_running_loop().time()
        return (
            self.propagated_since is not None
            and now - self.propagated_since >= self.timings.propagation_seconds
        )

    def log_error(self, error: Exception) -> None:
        """Say once what is wrong; what nobody foresaw comes with its trace."""
        words = f"the certificates of the webhooks cannot be looked after: {redact(str(error))}"
        if isinstance(error, Forbidden):
            words += ". Grant the generated roles: kubectl apply -k config/rbac"
        if words != self.last_error:
            self.log.error(words, error=None if isinstance(error, KubewrightError) else error)
        self.last_error = words

    def get_expiry_seconds(self) -> float:
        """When the serving certificate expires, in seconds since 1970; 0 where there is none."""
        return (
            self.serving_certificate.expires_at.timestamp()
            if self.serving_certificate is not None
            else 0.0
        )

    @property
    def problem(self) -> str:
        """Why nobody can connect, "" where they can."""
        if self.serving_certificate is None:
            return self.last_error or "there is no certificate yet"
        return (
            f"the certificate has expired. {self.last_error}".strip()
            if self.serving_certificate.is_expired(self.clock())
            else ""
        )
