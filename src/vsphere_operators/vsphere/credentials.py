"""What to log in with: fixed, or read from a directory such as a mounted Secret, and noticed when it changes.

    saml-token                                       a bearer token, the XML of a SAML assertion
    tls.crt, tls.key, extension-key                  the certificate of a registered extension
    GOVMOMI_USERNAME, GOVMOMI_PASSWORD               or VC_USER, VC_PASS, or username, password

The first that is complete counts. Nothing here ever shows a password: not in a repr, not in an error.
"""

from __future__ import annotations

import asyncio
import re
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
MAX_FILE_BYTES = 1024 * 1024  # a Secret cannot be larger

# What XML cannot carry, and what is left of bytes that are not UTF-8: it would end in an error that quotes the whole request.
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
    pem: bytes = field(default=b"", repr=False)
    """What both files hold, so that a renewed certificate compares as changed."""
    source: str = field(default="the environment", compare=False)
    """Where a person finds them, for messages."""
    is_watched: bool = field(default=False, compare=False)
    """Whether a change of the source is noticed."""

    @property
    def description(self) -> str:
        """Whom they name, for people."""
        if self.saml_token:
            return "the SAML token"
        return (
            f'the extension "{self.extension_key}"'
            if self.extension_key
            else f'the user "{self.username}"'
        )

    @property
    def advice(self) -> str:
        """What to do when they are refused."""
        if self.is_watched:
            return f"Correct them in {self.source}: what is changed there is tried at once"
        return f"Correct them in {self.source} and start the manager again"

    def redact(self, text: str) -> str:
        """The text without these secrets, also as XML spells them: a server may answer with what it was sent."""
        for secret in (self.password, self.saml_token):
            for form in (
                {secret, _escape_xml(secret), _escape_xml(secret).replace('"', "&quot;")}
                if secret
                else ()
            ):
                text = text.replace(form, "***")
        return text


class CredentialSource(Protocol):
    """Where credentials come from."""

    def read(self) -> Credentials:
        """What they are now; Denied says in plain words what is missing. It may block."""
        ...

    async def wait_for_change(self, since: Credentials) -> Credentials:
        """Wait until they can be read and are others than those."""
        ...


class FixedCredentials:
    """Credentials that stay, such as those of the environment."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials

    def read(self) -> Credentials:
        """The same as ever."""
        return _require_usable(self.credentials)

    async def wait_for_change(self, since: Credentials) -> Credentials:
        """Wait for ever, unless those were others; what cannot be used does not become usable."""
        if self.credentials == since or _explain_unusable(self.credentials):
            await asyncio.Event().wait()
        return self.credentials


class DirectoryCredentials:
    """Credentials in a directory, one file for each key."""

    def __init__(self, path: Path | str, poll_seconds: float = POLL_SECONDS) -> None:
        self.path, self.poll_seconds = Path(path), poll_seconds

    def read(self) -> Credentials:
        """What the files say now; it blocks."""
        files = CredentialFiles(self.path)
        found = _read_token(files) or _read_certificate(files) or _read_user_password(files)
        if found is None and CredentialFiles(self.path)._data_path != files._data_path:
            return self.read()  # swapped, and the old files deleted, while we read them
        if found is None:
            raise Denied(
                f"The credentials in {self.path} cannot be used: {files._describe_missing()}"
            )
        return _require_usable(found)

    async def wait_for_change(self, since: Credentials) -> Credentials:
        """Look every 2 s; what cannot be read, or is not complete yet, has not changed."""
        while True:
            found = await asyncio.to_thread(self.read_or_none)
            if found is not None and found != since:
                return found
            await asyncio.sleep(self.poll_seconds)

    def read_or_none(self) -> Credentials | None:
        """What the files say now, None if that cannot be used."""
        try:
            return self.read()
        except Denied:
            return None


class CredentialFiles:
    """The directory at one moment: the kubelet swaps the link `..data` in one step, so all files are read behind the same target of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data_path = (path / "..data").resolve() if (path / "..data").is_dir() else path

    def read_text(self, key: str) -> str:
        """A file's content without the newline that editors and `echo` leave; "" if there is none."""
        try:
            return self.read_bytes(key).decode().rstrip("\r\n")
        except UnicodeDecodeError:
            pass
        # Outside the handler: that error holds the content, and would hang on ours.
        raise Denied(f"The credentials in {self.path} cannot be used: {key} is not UTF-8 text.")

    def read_bytes(self, key: str) -> bytes:
        """A file's bytes, none where there is no such file."""
        try:
            with (self._data_path / key).open("rb") as file:
                return file.read(MAX_FILE_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            raise Denied(
                f"The credentials in {self.path} cannot be read: {key}: {error.strerror}."
            ) from error

    def _describe_missing(self) -> str:
        """What is wrong with the directory, and what may be in it."""
        fix = f"Put {', or '.join(' and '.join(pair) for pair in USER_PASSWORD_FILES)} there; or {TOKEN_FILE}; or {CERTIFICATE_FILE}, {KEY_FILE} and {EXTENSION_KEY_FILE}."
        if not self.path.is_dir():
            return f"there is no such directory. {fix}"
        for pair in USER_PASSWORD_FILES:
            here = [key for key in pair if self.read_text(key)]
            if len(here) == 1:
                other = next(key for key in pair if key not in here)
                return f"{here[0]} is there, but {other} is missing or empty. {fix}"
        return f"no key that they could come from is there, or all are empty. {fix}"


def _read_token(files: CredentialFiles) -> Credentials | None:
    """The token, without the XML declaration, which cannot stand inside another document."""
    token = re.sub(r"\A\s*<\?xml[^>]{0,200}\?>", "", files.read_text(TOKEN_FILE)).strip()
    if token and not token.startswith("<"):
        raise Denied(
            f"The credentials in {files.path} cannot be used: {TOKEN_FILE} is not the XML of a SAML assertion."
        )
    return Credentials(saml_token=token, source=str(files.path), is_watched=True) if token else None


def _read_certificate(files: CredentialFiles) -> Credentials | None:
    """The certificate of an extension, where all three files are there."""
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


def _read_user_password(files: CredentialFiles) -> Credentials | None:
    """The first complete pair of user and password."""
    for user_key, password_key in USER_PASSWORD_FILES:
        user, password = files.read_text(user_key), files.read_text(password_key)
        if user and password:
            return Credentials(
                username=user, password=password, source=str(files.path), is_watched=True
            )
    return None


def _require_usable(credentials: Credentials) -> Credentials:
    """The same credentials, if they can be sent at all."""
    if why := _explain_unusable(credentials):
        raise Denied(f"The credentials in {credentials.source} cannot be used: {why}.")
    return credentials


def _explain_unusable(credentials: Credentials) -> str:
    """What keeps them from being sent, "" for nothing."""
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
    bad = [name for name, value in values.items() if _INVALID_XML_CHARACTERS.search(value)]
    return f"the {bad[0]} has a character that XML cannot carry" if bad else ""


def _escape_xml(text: str) -> str:
    """As pyVmomi writes it into a request."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
