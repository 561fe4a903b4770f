"""A certificate authority that lives as long as a test run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from .. import x509

_LIFETIME = timedelta(days=2)


@dataclass(frozen=True)
class KeyPair(x509.KeyPair):
    """A certificate and its private key, which can be written to files."""

    def write(self, certificate: Path, key: Path) -> None:
        certificate.write_bytes(self.certificate)
        write_private_file(key, self.key)


class CertificateAuthority:
    """Signs serving and client certificates of the API server, etcd and the proxies."""

    def __init__(self, name: str) -> None:
        self._key_pair = x509.create_ca(name, datetime.now(UTC), _LIFETIME)
        self.certificate = self._key_pair.certificate

    def issue_serving_certificate(self, *hosts: str) -> KeyPair:
        """A server's certificate, valid for these host names and IP addresses."""
        now = datetime.now(UTC)
        return KeyPair(
            **vars(x509.issue_serving_certificate(self._key_pair, hosts, now, _LIFETIME))
        )

    def issue_client_certificate(self, user: str, groups: tuple[str, ...] = ()) -> KeyPair:
        """A client's certificate: Kubernetes reads the user from CN and the groups from O."""
        now = datetime.now(UTC)
        return KeyPair(
            **vars(x509.issue_client_certificate(self._key_pair, user, groups, now, _LIFETIME))
        )


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    path.touch(mode=0o600)
    path.write_bytes(content)
