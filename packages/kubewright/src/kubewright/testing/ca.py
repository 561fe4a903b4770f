"""A certificate authority that lives as long as a test run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from .. import x509

_LIFETIME = timedelta(days=2)


class CertificateAuthority:
    """Signs serving and client certificates of the API server, etcd and the proxies."""

    def __init__(self, name: str) -> None:
        self._key_pair = x509.create_ca(name, datetime.now(UTC), _LIFETIME)
        self.certificate = self._key_pair.certificate

    def issue_serving_certificate(self, *hosts: str) -> x509.KeyPair:
        """A server's certificate, valid for these host names and IP addresses."""
        return x509.issue_serving_certificate(self._key_pair, hosts, datetime.now(UTC), _LIFETIME)

    def issue_client_certificate(self, user: str, groups: tuple[str, ...] = ()) -> x509.KeyPair:
        """A client's certificate: Kubernetes reads the user from CN and the groups from O."""
        now = datetime.now(UTC)
        return x509.issue_client_certificate(self._key_pair, user, groups, now, _LIFETIME)


def write_key_pair(pair: x509.KeyPair, certificate: Path, key: Path) -> None:
    certificate.write_bytes(pair.certificate)
    write_private_file(key, pair.key)


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    path.touch(mode=0o600)
    path.write_bytes(content)
