"""The address of a vCenter, and the TLS settings for it."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from .faults import CertificateFileUnusable, CertificateRefused, CertificateUntrusted


@dataclass(frozen=True)
class Address:
    """Host and port of a vCenter, and how to verify its certificate."""

    host: str
    port: int = 443
    path: str = "/sdk"
    insecure: bool = False
    ca_file: str = ""
    # The client certificate and its key, for a login with one.
    certificate_file: str = ""
    key_file: str = ""
    # The HTTP proxy that leads to the SDK tunnel. vCenter fixes this port; only tests change it.
    tunnel_port: int = 80
    # The name in the configuration; may be empty.
    name: str = ""

    @property
    def display_name(self) -> str:
        """For messages: the name and the host, or the host alone."""
        return f"{self.name} ({self.host})" if self.name not in ("", self.host) else self.host

    @property
    def base_url(self) -> str:
        host = self._url_host
        return f"https://{host}:{self.port}" if self.port != 443 else f"https://{host}"

    @property
    def tunnel_proxy_url(self) -> str:
        return f"http://{self._url_host}:{self.tunnel_port}"

    @property
    def _url_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_address(text: str, **options: Any) -> Address:
    """An address from a host, host:port, an IP address or a URL. The ValueError never quotes it."""
    # Checked first: no other message may contain a part of a password.
    if "@" in text:
        raise ValueError("it contains a user or password; set those in their own variables")
    parts, port = _split_url(text.strip())
    if parts.scheme != "https":
        raise ValueError(f'the scheme must be https, not "{parts.scheme}"')
    if not parts.hostname or not re.fullmatch(r"[\w.:%-]+", parts.hostname):
        raise ValueError("it has no host name, or an invalid one")
    return Address(parts.hostname, port or 443, parts.path.rstrip("/") or "/sdk", **options)


def _split_url(text: str) -> tuple[SplitResult, int | None]:
    if "//" not in text:
        # A URL requires brackets around an IPv6 address.
        is_ipv6 = text.count(":") > 1 and not text.startswith("[")
        text = f"https://[{text}]" if is_ipv6 else f"https://{text}"
    try:
        parts = urlsplit(text)
        return parts, parts.port
    except ValueError:
        raise ValueError(
            "it is not an address: use a host, host:port, or https://host:port/sdk"
        ) from None


def create_ssl_context(address: Address) -> ssl.SSLContext:
    """The context for an address. It reads files, so it blocks."""
    context = _create_verifying_context(address)
    if address.certificate_file:
        _load_client_certificate(context, address)
    if address.insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _create_verifying_context(address: Address) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=address.ca_file or None)
    except OSError as error:
        raise _certificate_file_error(
            address,
            f"the CA file {address.ca_file}",
            error,
            "Check its path (-vcenter-ca-file, VC_CA_FILE, or `ca` in the file of -vcenters), and "
            "that it has certificates in PEM format",
        ) from error
    # Strict RFC 5280 checks (the default since Python 3.13) reject the CA that vCenter creates for
    # itself. The trusted certificate may be self-signed or an intermediate one.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _load_client_certificate(context: ssl.SSLContext, address: Address) -> None:
    try:
        # Without a password, OpenSSL would prompt on the terminal for an encrypted key.
        context.load_cert_chain(address.certificate_file, address.key_file or None, password=b"")
    except OSError as error:
        raise _certificate_file_error(
            address,
            f"the certificate file {address.certificate_file} (or its key)",
            error,
            "Check both in the directory of the credentials",
        ) from error


def _certificate_file_error(
    address: Address, file: str, error: OSError, advice: str
) -> CertificateFileUnusable:
    # OpenSSL adds its own code and the line of Python's source: [X509: NO_...] ... (_ssl.c:4154).
    reason = re.sub(r"^\[[^\]]*\] | \(_ssl\.c:\d+\)$", "", error.strerror or str(error))
    return CertificateFileUnusable(
        f"vCenter {address.display_name}: {file} cannot be used: {reason}. {advice}. "
        "It is read again at the next attempt."
    )


def certificate_error(error: Exception, address: Address) -> CertificateRefused:
    """OpenSSL's reason, and how to fix it."""
    prefix = f"vCenter {address.display_name}: its certificate is not accepted"
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    reason = getattr(cause, "verify_message", "") or str(cause)
    reason = reason.rstrip(".")
    text = reason.lower()
    if "expired" in text:
        return CertificateRefused(
            f"{prefix}: {reason}. Renew the vCenter's certificate, or check this machine's clock."
        )
    if "hostname mismatch" in text or "ip address mismatch" in text or "not valid for" in text:
        return CertificateRefused(
            f"{prefix}: {reason}. Use the name in the certificate instead of {address.host}."
        )
    cause = (
        f"{address.ca_file} does not contain the CA that signed it"
        if address.ca_file
        else "this machine does not trust the CA that signed it"
    )
    return CertificateUntrusted(
        f"{prefix}: {reason}: {cause}. Download the CA certificates from "
        f"{address.base_url}/certs/download.zip and pass them with -vcenter-ca-file; for tests "
        "only, -insecure skips the check."
    )
