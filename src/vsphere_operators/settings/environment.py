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
# Much longer than any address: the file may be the wrong one.
_MAX_SERVER_BYTES = 4096


@dataclass(frozen=True)
class Login:
    """One set of variables, GOVMOMI_* or VC_*, and their values."""

    variable_names: tuple[str, str, str]
    server: str
    username: str
    password: str = field(repr=False)

    @property
    def values(self) -> tuple[str, str, str]:
        """In the order of `variable_names`; two spellings of one server are equal."""
        return _normalize_server(self.server), self.username, self.password


def _find_differences(login: Login, other: Login) -> list[str]:
    """The pairs of variables that are both set, to different values."""
    return [
        f"{name} and {other_name}"
        for name, other_name, value, other_value in zip(
            login.variable_names, other.variable_names, login.values, other.values, strict=True
        )
        if value and other_value and value != other_value
    ]


def _normalize_server(server: str) -> str:
    try:
        address = parse_server_address(server, insecure=False, ca_file="")
        return f"{address.base_url}{address.path}"
    except ValueError:
        return server


@dataclass(frozen=True)
class Environment:
    """The variables that configure one vCenter; a Secret may contain either set of them."""

    govmomi_url: str = env_variable(
        "GOVMOMI_URL",
        "",
        "Address of the vCenter: a host, host:port, an IP address or an https URL.",
    )
    govmomi_hostname: str = env_variable(
        "GOVMOMI_HOSTNAME", "", "Address of the vCenter, if GOVMOMI_URL is not set."
    )
    govmomi_username: str = env_variable(
        "GOVMOMI_USERNAME", "", "User that logs in to the vCenter."
    )
    govmomi_password: str = env_variable(
        "GOVMOMI_PASSWORD", "", "Password of that user.", secret=True
    )
    vc_host: str = env_variable(
        "VC_HOST", "", "Address of the vCenter, if the GOVMOMI_ variables are not all set."
    )
    vc_user: str = env_variable("VC_USER", "", "User that logs in there.")
    vc_pass: str = env_variable("VC_PASS", "", "Password of that user.", secret=True)
    vc_insecure: bool = env_variable(
        "VC_INSECURE", False, "Same as -insecure, if neither that nor GOVMOMI_INSECURE is set."
    )

    @property
    def govmomi_login(self) -> Login:
        server_key = (
            "GOVMOMI_HOSTNAME" if self.govmomi_hostname and not self.govmomi_url else "GOVMOMI_URL"
        )
        keys = (server_key, "GOVMOMI_USERNAME", "GOVMOMI_PASSWORD")
        server = self.govmomi_url or self.govmomi_hostname
        return Login(
            keys,
            server.strip(),
            # Values that `echo` wrote into a Secret end with a newline.
            self.govmomi_username.strip(),
            self.govmomi_password.rstrip("\r\n"),
        )

    @property
    def vc_login(self) -> Login:
        return Login(
            ("VC_HOST", "VC_USER", "VC_PASS"),
            self.vc_host.strip(),
            self.vc_user.strip(),
            self.vc_pass.rstrip("\r\n"),
        )

    def choose_login(self, warn: Warn) -> Login | None:
        """The first complete set, or both combined if they agree; None if nothing is set."""
        govmomi, vc = self.govmomi_login, self.vc_login
        differing = _find_differences(govmomi, vc)
        for login in (govmomi, vc):
            if all(login.values):
                if differing:
                    warn(
                        "the environment names two vCenters or users: "
                        f"{', '.join(differing)} differ; {', '.join(login.variable_names)} are used"
                    )
                return login
        if not any((*govmomi.values, *vc.values)):
            return None
        login = govmomi
        # Never combine sets that differ: that could send a password to another server.
        if not differing:
            login = Login(
                govmomi.variable_names,
                govmomi.server or vc.server,
                govmomi.username or vc.username,
                govmomi.password or vc.password,
            )
        if not all(login.values):
            raise _build_incomplete_login_error(login, vc)
        return login

    def choose_server(self, warn: Warn) -> tuple[str, str]:
        """The variable with the address of the vCenter, and its value."""
        govmomi, vc = self.govmomi_login, self.vc_login
        login = govmomi if govmomi.server else vc
        name = login.variable_names[0]
        if (
            govmomi.server
            and vc.server
            and _normalize_server(govmomi.server) != _normalize_server(vc.server)
        ):
            warn(
                f"the environment names two vCenters: {govmomi.variable_names[0]} and "
                f"{vc.variable_names[0]} differ; {name} is used"
            )
        return name, login.server


def _build_incomplete_login_error(login: Login, other: Login) -> ConfigError:
    missing = [
        f"{key} (or {alias})"
        for key, alias, value in zip(
            login.variable_names, other.variable_names, login.values, strict=True
        )
        if not value
    ]
    return ConfigError(
        f"the login to the vCenter is incomplete: {', '.join(missing)} not set. Set the missing "
        "variables (in a cluster, as keys of Secret vc-creds), or unset the others to run without "
        "a vCenter."
    )


def read_server(directory: str) -> tuple[str, str]:
    """The file with the address of the vCenter, and the address; both may be ""."""
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
