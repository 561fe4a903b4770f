"""Where a vCenter is, and whom to believe that it is the one."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from .faults import CertificateRefused


@dataclass(frozen=True)
class Address:
    """Where a vCenter is, and whom to believe that it is the one."""

    host: str
    port: int = 443
    path: str = "/sdk"
    insecure: bool = False
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    """A client certificate, for who logs in with one."""
    name: str = ""
    """What people call it; the host where they call it nothing else."""

    @property
    def display_name(self) -> str:
        """For messages: its name, and where it is, unless that is the same."""
        return f"{self.name} ({self.host})" if self.name not in ("", self.host) else self.host

    @property
    def base_url(self) -> str:
        """https://host:port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}" if self.port != 443 else f"https://{host}"


def parse_address(text: str, **how: Any) -> Address:
    """The address in what people write: a host, host:port, an IP, or a URL; ValueError says what is wrong with it, and never quotes it."""
    # First of all: whatever else is wrong, the words for it must not hold a piece of a password.
    if "@" in text:
        raise ValueError("it has a user or password inside; give those by their own variables")
    parts, port = _split_url(text.strip())
    if parts.scheme != "https":
        raise ValueError(f'"{parts.scheme}" is not https, the only way to a vCenter')
    if not parts.hostname or not re.fullmatch(r"[\w.:%-]+", parts.hostname):
        raise ValueError("it has no host name, or one with characters that no host name has")
    return Address(parts.hostname, port or 443, parts.path.rstrip("/") or "/sdk", **how)


def _split_url(text: str) -> tuple[SplitResult, int | None]:
    """The parts of an address, and its port."""
    try:
        parts = urlsplit(text if "//" in text else f"https://{_bracket_ipv6(text)}")
        return parts, parts.port
    except ValueError:
        raise ValueError(
            "it is no address: write a host, host:port, or https://host:port/sdk"
        ) from None


def _bracket_ipv6(text: str) -> str:
    """A bare IPv6 address in the brackets that a URL wants."""
    return f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text


def create_ssl_context(address: Address) -> ssl.SSLContext:
    """Verify unless told not to, against the CA bundle if there is one; it blocks, since it reads files."""
    context = _create_verifying_context(address)
    if address.certificate_file:
        _load_client_certificate(context, address)
    if address.insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _create_verifying_context(address: Address) -> ssl.SSLContext:
    """A context that believes the CA bundle, or this machine's."""
    try:
        context = ssl.create_default_context(cafile=address.ca_file or None)
    except OSError as error:
        raise _certificate_file_error(address, address.ca_file, error) from error
    # RFC 5280 to the letter (the default since Python 3.13) refuses the CA that vCenter makes for itself; a self-signed
    # certificate, or an intermediate one, may be what is trusted.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _load_client_certificate(context: ssl.SSLContext, address: Address) -> None:
    """Give our own certificate to the context."""
    try:
        # Without a password OpenSSL would ask on the terminal.
        context.load_cert_chain(address.certificate_file, address.key_file or None, password=b"")
    except OSError as error:
        raise _certificate_file_error(
            address, f"{address.certificate_file} (or its key)", error
        ) from error


def _certificate_file_error(address: Address, file: str, error: OSError) -> CertificateRefused:
    """A file that is no certificate; ssl.SSLError is an OSError, too."""
    return CertificateRefused(
        f"vCenter {address.display_name}: the certificate file {file} cannot be used: {error.strerror or error}. "
        "Check its path (-vcenter-ca-file, or `ca` in the file of vCenters); what is mended there is read at the next try."
    )


def explain_certificate_error(error: Exception, address: Address) -> str:
    """OpenSSL's reason, and the fix that belongs to it."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    reason = getattr(cause, "verify_message", "") or str(cause)
    text = reason.lower()
    if "expired" in text:
        return f"{reason}. Renew the vCenter's certificate, or check this machine's clock."
    if "hostname mismatch" in text or "ip address mismatch" in text or "not valid for" in text:
        return (
            f"{reason}. Use the name that the certificate is made out to instead of {address.host}."
        )
    bundle = (
        f"{address.ca_file} does not hold the CA that signed it"
        if address.ca_file
        else "this machine does not know the CA that signed it"
    )
    return (
        f"{reason}: {bundle}. Download the CA certificates from {address.base_url}/certs/download.zip and name them as CA bundle "
        "(-vcenter-ca-file); for tests alone, -insecure skips the check."
    )
