"""The format of kubeconfig files: YAML to typed entries, several files merged as kubectl does.

Every error names its file and key. No message quotes a value, because any value may be a secret.
`kubeconfig` decides which entry is used.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from .errors import ConfigError, KubeconfigError


class KubeconfigLocation(NamedTuple):
    """The file and entry that a value came from, for error messages."""

    file: str = ""
    key: str = ""

    def error(self, key: str, problem: str) -> ConfigError:
        """The error for one key of this entry."""
        # Without a file: the value did not come from a kubeconfig, but from a Pod's volume.
        if not self.file:
            return ConfigError(problem)
        return KubeconfigError(self.file, ".".join(filter(None, (self.key, key))), problem)

    def resolve_path(self, name: str) -> str:
        """Resolve a path, which is relative to the kubeconfig as in kubectl; "" stays ""."""
        return str(Path(self.file).parent / name) if name else ""


class NamedExtension(Struct, frozen=True):
    """`clusters[].cluster.extensions[]`: data that exec plugins define."""

    name: str
    extension: Any = None


class Cluster(Struct, frozen=True, rename="kebab"):
    """The part of `clusters[].cluster` that is used."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    extensions: tuple[NamedExtension, ...] = ()


class ExecEnvVar(Struct, frozen=True):
    """`users[].user.exec.env[]`."""

    name: str
    value: str = ""


class ExecConfig(Struct, frozen=True, rename="camel"):
    """`users[].user.exec`."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[ExecEnvVar, ...] = ()
    api_version: str = ""
    interactive_mode: str = ""
    provide_cluster_info: bool = False
    install_hint: str = ""


class User(Struct, frozen=True, rename="kebab"):
    """`users[].user`. A field of type Any is read only to reject it."""

    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: ExecConfig | None = None
    auth_provider: Any = None
    as_user: Any = msgspec.field(default=None, name="as")
    as_uid: Any = None
    as_groups: Any = None
    as_user_extra: Any = None


class Context(Struct, frozen=True):
    """`contexts[].context`: the names of a cluster and a user."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedEntry(Struct, frozen=True):
    """An item of `clusters`, `users` or `contexts`; only the field of that list is set."""

    name: str
    cluster: Cluster = Cluster()
    user: User = User()
    context: Context = Context()


class _KubeconfigDocument(Struct, frozen=True, rename="kebab"):
    kind: str = "Config"
    current_context: str = ""
    clusters: tuple[NamedEntry, ...] = ()
    users: tuple[NamedEntry, ...] = ()
    contexts: tuple[NamedEntry, ...] = ()


@dataclass(frozen=True)
class MergedKubeconfig:
    """Several files read as one; the key of an entry is for example ("cluster", its name)."""

    files: str
    current_context: str
    entries: Mapping[tuple[str, str], tuple[KubeconfigLocation, NamedEntry]] = field(repr=False)

    def select_context(self, requested: str) -> tuple[str, KubeconfigLocation, Context]:
        """The requested context, or the current one."""
        name, key = requested, "contexts"
        if not requested:
            name, key = self.current_context, "current-context"
        if not name:
            raise KubeconfigError(
                self.files,
                key,
                "the value is not set. Run `kubectl config use-context <name>`. "
                f"The contexts are: {self._format_names('context')}.",
            )
        location, entry = self.find_entry("context", name, KubeconfigLocation(self.files), key)
        return name, location, entry.context

    def find_entry(
        self, entry_type: str, name: str, referrer: KubeconfigLocation, key: str = ""
    ) -> tuple[KubeconfigLocation, NamedEntry]:
        """The cluster, user or context of that name; an error points at the `referrer`."""
        if (entry_type, name) not in self.entries:
            problem = f"the context has no {entry_type}"
            if name:
                problem = f'there is no {entry_type} "{name}"'
            names = self._format_names(entry_type)
            raise referrer.error(key or entry_type, f"{problem}. The {entry_type}s are: {names}.")
        return self.entries[entry_type, name]

    def _format_names(self, entry_type: str) -> str:
        names = (name for existing_type, name in self.entries if existing_type == entry_type)
        return ", ".join(names) or "(none)"


def merge_files(files: Sequence[Path]) -> MergedKubeconfig:
    """Merge files as kubectl does: the first file that sets an entry or current-context wins."""
    current, entries = "", dict[tuple[str, str], tuple[KubeconfigLocation, NamedEntry]]()
    for file in files:
        document = _parse_file(file)
        current = current or document.current_context
        for part, items in (
            ("cluster", document.clusters),
            ("user", document.users),
            ("context", document.contexts),
        ):
            for entry in items:
                location = KubeconfigLocation(str(file), f"{part}s[name={entry.name}].{part}")
                entries.setdefault((part, entry.name), (location, entry))
    return MergedKubeconfig(os.pathsep.join(map(str, files)), current, entries)


def _parse_file(file: Path) -> _KubeconfigDocument:
    location = KubeconfigLocation(str(file))
    raw = _read_yaml(location, read_file(location, "", str(file)))
    try:
        # An empty file is an empty kubeconfig, as in kubectl. Not strict, because the parser
        # returns the string "true" for a bool.
        document = msgspec.convert({} if raw is None else raw, _KubeconfigDocument, strict=False)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise location.error(
            _path_with_names(path.strip("`."), raw),
            f"the value has the wrong type: {problem.replace('`', '')}",
        ) from None
    except RecursionError:
        raise location.error("", "the file is nested too deeply to be a kubeconfig") from None
    if document.kind != "Config":
        raise location.error(
            "kind", f"the file is a {document.kind}, not a kubeconfig (kind: Config)"
        )
    return document


def _read_yaml(location: KubeconfigLocation, content: bytes) -> Any:
    # Imported here: a manager in a Pod has no kubeconfig, and would hold the parser for nothing.
    from .kubeconfig_yaml import KubeconfigSyntaxError, parse_kubeconfig

    try:
        return parse_kubeconfig(content)
    except KubeconfigSyntaxError as error:
        raise location.error("", str(error)) from None


def _path_with_names(path: str, document: Any) -> str:
    """Replace the index in a path: clusters[0].cluster becomes clusters[name=kind].cluster."""

    def with_name(match: re.Match[str]) -> str:
        entry = document[match[1]][int(match[2])]
        name = entry.get("name") if isinstance(entry, dict) else None
        return f"{match[1]}[name={name}]" if isinstance(name, str) else match[0]

    return re.sub(r"^(clusters|users|contexts)\[(\d+)\]", with_name, path)


def read_file(location: KubeconfigLocation, key: str, file: str) -> bytes:
    """Read the kubeconfig, or a file that it names."""
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "this is not a file name"
        subject = "the file" if file == location.file else file
        raise location.error(key, f"{subject} cannot be read: {reason}") from error


def decode_base64(location: KubeconfigLocation, key: str, value: str) -> bytes:
    """Decode a `*-data` value, which may be folded over several lines."""
    try:
        return base64.b64decode("".join(value.split()), validate=True)
    except ValueError:
        raise location.error(key, "the value is not valid base64") from None
