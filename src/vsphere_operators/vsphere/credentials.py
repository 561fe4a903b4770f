"""Credentials of a vCenter: fixed, or read from a directory such as a mounted Secret.

    saml-token                                       a bearer token, the XML of a SAML assertion
    tls.crt, tls.key, extension-key                  the certificate of a registered extension
    GOVMOMI_USERNAME, GOVMOMI_PASSWORD               or VC_USER, VC_PASS, or username, password

The first complete set is used. A change of the directory is noticed. No repr and no error contains
a password.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from .faults import Denied

USER_PASSWORD_FILES = (
    ("GOVMOMI_USERNAME", "GOVMOMI_PASSWORD"),
    ("VC_USER", "VC_PASS"),
    ("username", "password"),
)
TOKEN_FILE = "saml-token"
CERTIFICATE_FILE, KEY_FILE, EXTENSION_KEY_FILE = "tls.crt", "tls.key", "extension-key"
POLL_SECONDS = 2.0
# A Secret cannot be larger.
_MAX_FILE_BYTES = 1024 * 1024

# Characters that are invalid in XML, and surrogates of bytes that are not UTF-8. The serializer's
# error for them would quote the whole request, with the password.
_INVALID_XML_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True)
class Credentials:
    """One way to log in: a user and password, a token, or a certificate."""

    username: str = ""
    password: str = field(default="", repr=False)
    saml_token: str = field(default="", repr=False)
    extension_key: str = ""
    certificate_file: str = ""
    key_file: str = ""
    # The content of both files, so that a renewed certificate compares as changed.
    pem: bytes = field(default=b"", repr=False)
    # Where the user can change them, for messages.
    source: str = field(default="the environment", compare=False)
    # Whether a change of the source is noticed.
    is_watched: bool = field(default=False, compare=False)

    @property
    def description(self) -> str:
        """The account, for messages."""
        if self.saml_token:
            return "the SAML token"
        return (
            f'the extension "{self.extension_key}"'
            if self.extension_key
            else f'the user "{self.username}"'
        )

    @property
    def advice(self) -> str:
        """What to do when they are rejected."""
        if self.is_watched:
            return f"Correct them in {self.source}; a change there takes effect within seconds"
        return f"Correct them in {self.source} and restart the manager"

    def remove_secrets(self, text: str) -> str:
        """The text without these secrets, plain or escaped: a server may echo the request."""
        for secret in filter(None, (self.password, self.saml_token)):
            # As pyVmomi writes it into a request.
            escaped = secret.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            for form in {secret, escaped, escaped.replace('"', "&quot;")}:
                text = text.replace(form, "***")
        return text


class CredentialSource(Protocol):
    def read(self) -> Credentials:
        """The current credentials; Denied if they are incomplete. It may block."""
        ...

    async def wait_for_change(self, previous: Credentials) -> Credentials:
        """Wait until the credentials can be read and differ from the previous ones."""
        ...


class FixedCredentials:
    """Credentials that never change, such as those of the environment."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials

    def read(self) -> Credentials:
        return _require_usable(self.credentials)

    async def wait_for_change(self, previous: Credentials) -> Credentials:
        # Unusable credentials never become usable.
        if self.credentials == previous or _explain_unusable(self.credentials):
            await asyncio.Event().wait()
        return self.credentials


class DirectoryCredentials:
    """Credentials in a directory, one file per key."""

    def __init__(self, path: Path | str, poll_seconds: float = POLL_SECONDS) -> None:
        self.path, self.poll_seconds = Path(path), poll_seconds

    def read(self) -> Credentials:
        files = _CredentialFiles(self.path)
        credentials = _read_token(files) or _read_certificate(files) or _read_user_password(files)
        if credentials is None:
            if _CredentialFiles(self.path).data_path != files.data_path:
                # The kubelet swapped the directory and deleted the old files during the read.
                return self.read()
            raise Denied(
                f"The credentials in {self.path} cannot be used: {files.describe_missing()}"
            )
        return _require_usable(credentials)

    async def wait_for_change(self, previous: Credentials) -> Credentials:
        """Poll the files. Unreadable or incomplete credentials count as unchanged."""
        while True:
            with suppress(Denied):
                credentials = await asyncio.to_thread(self.read)
                if credentials != previous:
                    return credentials
            await asyncio.sleep(self.poll_seconds)


class _CredentialFiles:
    """A consistent view of the directory.

    The kubelet updates a mounted Secret by swapping the link `..data`. All files are read through
    the same target of that link.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data_path = (path / "..data").resolve() if (path / "..data").is_dir() else path

    def read_text(self, key: str) -> str:
        """The text of a file without the newline that editors and `echo` add; "" if missing."""
        try:
            return self.read_bytes(key).decode().rstrip("\r\n")
        except UnicodeDecodeError:
            pass
        # Outside the handler: a chained UnicodeDecodeError would contain the secret.
        raise Denied(f"The credentials in {self.path} cannot be used: {key} is not UTF-8 text.")

    def read_bytes(self, key: str) -> bytes:
        try:
            with (self.data_path / key).open("rb") as file:
                return file.read(_MAX_FILE_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            raise Denied(
                f"The credentials in {self.path} cannot be read: {key}: {error.strerror}."
            ) from error

    def describe_missing(self) -> str:
        pairs = ", or ".join(" and ".join(pair) for pair in USER_PASSWORD_FILES)
        fix = (
            f"Add {pairs}; or {TOKEN_FILE}; or {CERTIFICATE_FILE}, {KEY_FILE} and "
            f"{EXTENSION_KEY_FILE}."
        )
        if not self.path.is_dir():
            return f"the directory does not exist. {fix}"
        for pair in USER_PASSWORD_FILES:
            present = [key for key in pair if self.read_text(key)]
            if len(present) == 1:
                missing = next(key for key in pair if key not in present)
                return f"{present[0]} is set, but {missing} is missing or empty. {fix}"
        return f"none of the expected keys exists, or all are empty. {fix}"


def _read_token(files: _CredentialFiles) -> Credentials | None:
    # An XML declaration is not allowed inside another document, the SOAP envelope.
    token = re.sub(r"\A\s*<\?xml[^>]{0,200}\?>", "", files.read_text(TOKEN_FILE)).strip()
    if token and not token.startswith("<"):
        raise Denied(
            f"The credentials in {files.path} cannot be used: {TOKEN_FILE} is not the XML of a "
            "SAML assertion."
        )
    return Credentials(saml_token=token, source=str(files.path), is_watched=True) if token else None


def _read_certificate(files: _CredentialFiles) -> Credentials | None:
    certificate, key, extension = (
        files.read_bytes(CERTIFICATE_FILE),
        files.read_bytes(KEY_FILE),
        files.read_text(EXTENSION_KEY_FILE),
    )
    if not (certificate and key and extension):
        return None
    paths = {
        "certificate_file": str(files.path / CERTIFICATE_FILE),
        "key_file": str(files.path / KEY_FILE),
    }
    return Credentials(
        extension_key=extension,
        pem=certificate + key,
        source=str(files.path),
        is_watched=True,
        **paths,
    )


def _read_user_password(files: _CredentialFiles) -> Credentials | None:
    for user_key, password_key in USER_PASSWORD_FILES:
        user, password = files.read_text(user_key), files.read_text(password_key)
        if user and password:
            return Credentials(
                username=user, password=password, source=str(files.path), is_watched=True
            )
    return None


def _require_usable(credentials: Credentials) -> Credentials:
    if cause := _explain_unusable(credentials):
        raise Denied(f"The credentials in {credentials.source} cannot be used: {cause}.")
    return credentials


def _explain_unusable(credentials: Credentials) -> str:
    """Why they cannot be sent; "" if they can."""
    if not (
        (credentials.username and credentials.password)
        or credentials.saml_token
        or credentials.extension_key
    ):
        return "the user or the password is empty"
    values = {
        "user": credentials.username,
        "password": credentials.password,
        "token": credentials.saml_token,
    }
    for name, value in values.items():
        if _INVALID_XML_CHARACTERS.search(value):
            return f"the {name} contains a character that is not allowed in XML"
    return ""
