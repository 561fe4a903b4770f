"""Rotates the webhooks' CA: stored in a Secret, copied into every caBundle, signing certificates.

Questions and answers:

Which replica creates the CA?  The first one. `create` fails if the Secret exists, and every other
    write names the resourceVersion that was read. So one replica wins, and the others read what it
    wrote.
Why is the Secret read again before a caBundle is written?  A replica that was suspended for a while
    must not replace a new bundle by an old one. It reads the configuration, then the Secret, and
    writes only if the configuration is still the one that it read.
When does a new CA start to sign?  When this replica has seen it in each caBundle at every check for
    `propagation_seconds`.
What if the Secret is deleted?  It is created again from memory, so that the API servers keep
    trusting the certificates.
What if a configuration does not exist?  No API server calls the webhooks through it. It gets its
    caBundle when it is created.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..builtin import Secret
from ..client import Client
from ..condition import utc_now
from ..errors import AlreadyExists, Conflict, Forbidden, KubewrightError, NotFound, redact
from ..kind import Key, ObjectMeta
from ..log import Log
from ..tls import ServingCertificate
from ..x509 import KeyPair, issue_serving_certificate
from .ca import CertificateAuthorities, next_rotation_step
from .ca_bundle import CaBundleTarget, build_ca_bundle_patch, has_client_config
from .options import CertificateTimings

# The first pause after a concurrent write and after a failure; each doubles until a check succeeds.
_CONFLICT_BACKOFF_SECONDS = 0.05
_FAILURE_BACKOFF_SECONDS = 0.5
_MAX_DOUBLINGS = 16


@dataclass(frozen=True)
class _StoredCa:
    """The CAs of the Secret, and the resourceVersion at which they were read."""

    authorities: CertificateAuthorities
    resource_version: str


class ConcurrentWrite(Exception):
    """Another replica wrote in the meantime: check again."""


class CertRotator:
    """One replica's part of the rotation; all replicas run the same."""

    def __init__(
        self,
        client: Client,
        tls_certificate: ServingCertificate,
        *,
        name: str,
        secret: Key,
        hosts: Sequence[str],
        targets: Sequence[CaBundleTarget],
        timings: CertificateTimings | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """The writes of `client` must not need the leader lease, because every replica serves."""
        self.targets = tuple(targets)
        self.stored: _StoredCa | None = None
        self.verified_versions: dict[CaBundleTarget, str] = {}
        """The resourceVersion at which each target was last seen with the stored bundle."""
        self.in_all_bundles_since: float | None = None
        """Since when every caBundle has held the stored bundle; None while one lacks it."""
        self.issued_pair: KeyPair | None = None
        self._client, self.tls_certificate = client, tls_certificate
        self._name, self._secret, self.hosts = name, secret, tuple(hosts)
        self._timings, self._clock = timings or CertificateTimings(), clock
        self._log = Log("webhook").bind(secret=str(secret))
        self.issuer_certificate = b""
        self._last_error = ""

    async def run(self) -> None:
        """Check at every interval, until cancelled."""
        failures = 0
        while True:
            try:
                await self.check()
                failures, pause = 0, self._timings.check_interval_seconds
            except (ConcurrentWrite, Conflict):
                pause = _CONFLICT_BACKOFF_SECONDS * 2 ** min(failures, _MAX_DOUBLINGS)
                failures += 1
            except Exception as error:
                self._log_error(error)
                pause = _FAILURE_BACKOFF_SECONDS * 2 ** min(failures, _MAX_DOUBLINGS)
                failures += 1
            # Jitter, so that the replicas do not write at the same moment again.
            pause = min(pause, self._timings.check_interval_seconds)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    async def check(self) -> None:
        """Check the Secret, the serving certificate and every caBundle, and take one step.

        The bundles come before the rotation, so that a CA signs only if they were just verified.
        """
        if self.stored is not None:
            # This replica may not reach the API server for long, while the API server reaches it.
            await self._renew_serving_certificate(self.stored.authorities.current)
        stored = await self._read_secret() or await self._create_secret()
        await self._renew_serving_certificate(stored.authorities.current)
        error = await self._propagate_bundle(stored)
        propagated = False
        if self.in_all_bundles_since is not None:
            seconds = asyncio.get_running_loop().time() - self.in_all_bundles_since
            propagated = seconds >= self._timings.propagation_seconds
        rotated = next_rotation_step(
            stored.authorities, self._clock(), self._timings, self._name, propagated=propagated
        )
        if rotated != stored.authorities:
            stored = await self._update_secret(stored.resource_version, rotated)
            await self._renew_serving_certificate(stored.authorities.current)
            error = await self._propagate_bundle(stored)
        if error is not None:
            raise error
        self._last_error = ""

    async def _read_secret(self) -> _StoredCa | None:
        """The CAs of the Secret, None if it does not exist; an empty or damaged one is filled."""
        try:
            secret = await self._client.get(Secret, self._secret)
        except NotFound:
            return None
        authorities = CertificateAuthorities.from_secret_data(secret.data)
        if authorities is None:
            # The Helm chart creates the Secret without data, so that it removes it as well.
            if secret.data:
                self._log.warning("the Secret contains no usable CA, creating a new one")
            return await self._update_secret(
                secret.metadata.resourceVersion, self._restore_or_create_ca()
            )
        return self._set_stored(_StoredCa(authorities, secret.metadata.resourceVersion))

    def _restore_or_create_ca(self) -> CertificateAuthorities:
        # From memory if possible: the API servers trust what is in their caBundles.
        authorities = self.stored.authorities if self.stored is not None else None
        return next_rotation_step(
            authorities, self._clock(), self._timings, self._name, propagated=False
        )

    async def _create_secret(self) -> _StoredCa:
        authorities = self._restore_or_create_ca()
        data = {
            key: value for key, value in authorities.to_secret_data().items() if value is not None
        }
        metadata = ObjectMeta(name=self._secret.name, namespace=self._secret.namespace)
        try:
            secret = await self._client.create(Secret(metadata=metadata, data=data, type="Opaque"))
        except AlreadyExists:
            raise ConcurrentWrite from None
        self._log.info(
            "created the Secret with the CA of the webhooks", expires=authorities.current.expires_at
        )
        return self._set_stored(_StoredCa(authorities, secret.metadata.resourceVersion))

    async def _update_secret(
        self, resource_version: str, authorities: CertificateAuthorities
    ) -> _StoredCa:
        patch = {
            "metadata": {"resourceVersion": resource_version},
            "data": authorities.to_secret_data(),
        }
        secret = await self._client.patch(Secret, self._secret, patch)
        self._log.info(
            "updated the Secret with the CA of the webhooks",
            expires=authorities.current.expires_at,
            next=authorities.next.expires_at if authorities.next else None,
            previous=authorities.previous.expires_at if authorities.previous else None,
        )
        return self._set_stored(_StoredCa(authorities, secret.metadata.resourceVersion))

    def _set_stored(self, stored: _StoredCa) -> _StoredCa:
        # A different bundle has to be verified in every target again.
        if self.stored is None or self.stored.authorities.bundle != stored.authorities.bundle:
            self.verified_versions.clear()
            self.in_all_bundles_since = None
        self.stored = stored
        return stored

    async def _renew_serving_certificate(self, ca: KeyPair) -> None:
        now = self._clock()
        if ca.is_expired(now):
            return
        if (
            self.issued_pair is None
            or self.issuer_certificate != ca.certificate
            or self.issued_pair.is_renewal_due(now)
        ):
            lifetime = timedelta(seconds=self._timings.serving_lifetime_seconds)
            pair = issue_serving_certificate(ca, self.hosts, now, lifetime)
            await asyncio.to_thread(self.tls_certificate.load_pem, pair.certificate + pair.key)
            self.issued_pair, self.issuer_certificate = pair, ca.certificate
            self._log.info("serving a new certificate", expires=pair.expires_at)

    async def _propagate_bundle(self, stored: _StoredCa) -> KubewrightError | None:
        """Write the bundle into every target. Return an error instead of stopping at it.

        A target that cannot be reached must not block the others.
        """
        last_error: KubewrightError | None = None
        for target in self.targets:
            try:
                await self._update_target(target, stored)
            except Conflict:
                raise ConcurrentWrite from None
            except KubewrightError as error:
                last_error = error
                self.in_all_bundles_since = None
        if last_error is None and self.in_all_bundles_since is None:
            self.in_all_bundles_since = asyncio.get_running_loop().time()
        return last_error

    async def _update_target(self, target: CaBundleTarget, stored: _StoredCa) -> None:
        try:
            metadata = (await self._client.get(target.metadata_kind, target.key)).metadata
            if self.verified_versions.get(target) == metadata.resourceVersion:
                return
            obj = await self._client.get(target.kind, target.key)
        except NotFound:
            self.verified_versions.pop(target, None)
            return
        if not has_client_config(obj):
            self._log.warning(
                "the object refers to no webhook, so the API server does not call the webhooks "
                "through it: apply the generated manifests",
                target=str(target),
            )
        patch = build_ca_bundle_patch(obj, stored.authorities.bundle)
        if patch is not None:
            secret = await self._client.get(Secret, self._secret)
            if secret.metadata.resourceVersion != stored.resource_version:
                raise ConcurrentWrite
            self.in_all_bundles_since = None
            obj = await self._client.patch(target.kind, target.key, patch)
            self._log.info("wrote the CA into the caBundle", target=str(target))
        self.verified_versions[target] = obj.metadata.resourceVersion

    def _log_error(self, error: Exception) -> None:
        """Log an error once, not at every check; an unexpected one with its stack trace."""
        message = f"cannot maintain the certificates of the webhooks: {redact(str(error))}"
        if isinstance(error, Forbidden):
            message += ". Grant the generated roles: kubectl apply --server-side -k config/rbac"
        if message != self._last_error:
            self._log.error(message, error=None if isinstance(error, KubewrightError) else error)
        self._last_error = message

    def get_expiry_timestamp(self) -> float:
        """When the serving certificate expires, in seconds since 1970; 0 without one."""
        if self.issued_pair is None:
            return 0.0
        return self.issued_pair.expires_at.timestamp()

    @property
    def problem(self) -> str:
        """Why TLS handshakes fail, "" if they do not."""
        if self.issued_pair is None:
            return self._last_error or "there is no certificate yet"
        if self.issued_pair.is_expired(self._clock()):
            return f"the certificate has expired. {self._last_error}".strip()
        return ""
