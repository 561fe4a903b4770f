"""The environment variables and the Secret directory that name one vCenter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kubewright.errors import ConfigError
from kubewright.flags import env_variable

from ..vcenters.config import parse_server_address

Warn = Callable[[str], None]


SERVER_KEYS = ("GOVMOMI_URL", "GOVMOMI_HOSTNAME", "VC_HOST")


_MAX_SERVER_BYTES = 4096


@dataclass(frozen=True)
class Login:
    """One set of variables, GOVMOMI_* or VC_*, with the keys of server, user and password."""

    variable_names: tuple[str, str, str]
    server: str
    username: str
    password: str = field(repr=False)

    @property
    def values(self) -> tuple[str, str, str]:
        """In the order of the keys; two spellings of one server are equal."""
        return _normalize_server(self.server), self.username, self.password

    def find_differences(self, other: Login) -> list[str]:
        """The pairs of keys that both are set, and say different things."""
        each = zip(
            self.variable_names, other.variable_names, self.values, other.values, strict=True
        )
        return [
            f"{mine} and {theirs}"
            for mine, theirs, left, right in each
            if left and right and left != right
        ]

    def _fill_from(self, other: Login) -> Login:
        """The same set, with what it lacks taken from the other."""
        return Login(
            self.variable_names,
            self.server or other.server,
            self.username or other.username,
            self.password or other.password,
        )


def _normalize_server(server: str) -> str:
    """The server in the one form that all its spellings share."""
    try:
        found = parse_server_address(server, insecure=False, ca_file="")
        return f"{found.base_url}{found.path}"
    except ValueError:
        return server


@dataclass(frozen=True)
class Environment:
    """The variables that name one vCenter; a Secret may hold either set of them."""

    govmomi_url: str = env_variable(
        "GOVMOMI_URL", "", "The vCenter: a host, host:port, an IP address or an https URL."
    )
    govmomi_hostname: str = env_variable(
        "GOVMOMI_HOSTNAME", "", "The same, when there is no GOVMOMI_URL."
    )
    govmomi_username: str = env_variable("GOVMOMI_USERNAME", "", "Who logs in to the vCenter.")
    govmomi_password: str = env_variable("GOVMOMI_PASSWORD", "", "The password.", secret=True)
    vc_host: str = env_variable(
        "VC_HOST", "", "The vCenter, when the GOVMOMI_ variables are not all set."
    )
    vc_user: str = env_variable("VC_USER", "", "Who logs in there.")
    vc_pass: str = env_variable("VC_PASS", "", "The password.", secret=True)
    vc_insecure: bool = env_variable(
        "VC_INSECURE", False, "As -insecure, when neither that nor GOVMOMI_INSECURE is given."
    )

    @property
    def govmomi_login(self) -> Login:
        """The set GOVMOMI_*; a password that `echo` wrote into a Secret ends with a newline."""
        server_key = (
            "GOVMOMI_HOSTNAME" if self.govmomi_hostname and not self.govmomi_url else "GOVMOMI_URL"
        )
        keys = (server_key, "GOVMOMI_USERNAME", "GOVMOMI_PASSWORD")
        server = self.govmomi_url or self.govmomi_hostname
        return Login(
            keys,
            server.strip(),
            self.govmomi_username.strip(),
            self.govmomi_password.rstrip("\r\n"),
        )

    @property
    def vc_login(self) -> Login:
        """The set VC_*."""
        return Login(
            ("VC_HOST", "VC_USER", "VC_PASS"),
            self.vc_host.strip(),
            self.vc_user.strip(),
            self.vc_pass.rstrip("\r\n"),
        )

    def choose_login(self, warn: Warn) -> Login | None:
        """The first complete set, or both together where they agree; None when nothing is set, ConfigError when something is missing."""
        differing = self.govmomi_login.find_differences(self.vc_login)
        for chosen in (self.govmomi_login, self.vc_login):
            if all(chosen.values):
                if differing:
                    warn(
                        f"the environment names two vCenters or users: {', '.join(differing)} differ; {', '.join(chosen.variable_names)} are used"
                    )
                return chosen
        if not any((*self.govmomi_login.values, *self.vc_login.values)):
            return None
        # A password must not go to a server that it was not meant for.
        together = self.govmomi_login if differing else self.govmomi_login._fill_from(self.vc_login)
        if not all(together.values):
            raise _build_incomplete_login_error(together, self.vc_login)
        return together

    def choose_server(self, warn: Warn) -> tuple[str, str]:
        """The variable that names the vCenter and what it says, for who has the credentials from elsewhere."""
        mine, theirs = self.govmomi_login, self.vc_login
        chosen = mine if mine.server else theirs
        if (
            mine.server
            and theirs.server
            and _normalize_server(mine.server) != _normalize_server(theirs.server)
        ):
            warn(
                f"the environment names two vCenters: {mine.variable_names[0]} and {theirs.variable_names[0]} differ; {chosen.variable_names[0]} is used"
            )
        return chosen.variable_names[0], chosen.server


def _build_incomplete_login_error(login: Login, other: Login) -> ConfigError:
    """The error for a set of variables that lacks some."""
    missing = [
        f"{key} (or {alias})"
        for key, alias, value in zip(
            login.variable_names, other.variable_names, login.values, strict=True
        )
        if not value
    ]
    return ConfigError(
        f"the environment names a vCenter, but not all that is needed: {', '.join(missing)} not set. "
        "Set what is missing, in a cluster as a key of Secret vc-creds; or unset the rest, to run without a vCenter."
    )


def read_server(directory: str) -> tuple[str, str]:
    """The file of the directory that names the vCenter and what it says; both "" where there is none."""
    for path in (Path(directory) / key for key in SERVER_KEYS):
        try:
            text = path.read_bytes()[:_MAX_SERVER_BYTES].decode(errors="replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise ConfigError(
                f"-vcenter-credentials: {path} cannot be read: {error.strerror}"
            ) from None
        if text:
            return str(path), text
    return "", ""
