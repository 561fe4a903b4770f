"""What is written in kubeconfig files: YAML -> typed entries, several files merged as kubectl does, every fault with its place.

Nothing here decides what is usable; that is `kubeconfig`. No message quotes a value: any of them may be a secret.
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
import yaml
from msgspec import Struct

from .errors import ConfigError, KubeconfigError


class KubeconfigLocation(NamedTuple):
    """Which entry of which kubeconfig a value came from, so that an error can point at it."""

    file: str = ""
    key: str = ""

    def error(self, key: str, why: str) -> ConfigError:
        """The error for one key of this entry. What came from no kubeconfig (a Pod's files, say) has no key to name."""
        return (
            KubeconfigError(self.file, ".".join(filter(None, (self.key, key))), why)
            if self.file
            else ConfigError(why)
        )

    def resolve_path(self, name: str) -> str:
        """The file of that name; a relative one is relative to the kubeconfig."""
        return str(Path(self.file).parent / name) if name else ""


class NamedExtension(Struct, frozen=True):
    """Data of some other program, kept with a cluster."""

    name: str
    extension: Any = None


class Cluster(Struct, frozen=True, rename="kebab"):
    """`clusters[].cluster`, as far as we use it."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    extensions: tuple[NamedExtension, ...] = ()


class ExecEnvVar(Struct, frozen=True):
    """One environment variable of a plugin."""

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
    """`users[].user`. What is typed Any is only looked at to refuse it."""

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
    """`contexts[].context`: a cluster and a user by name."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedEntry(Struct, frozen=True):
    """An element of `clusters`, `users` or `contexts`: a name, and the one of the three that belongs there."""

    name: str
    cluster: Cluster = Cluster()
    user: User = User()
    context: Context = Context()


class KubeconfigDocument(Struct, frozen=True, rename="kebab"):
    """A kubeconfig file."""

    kind: str = "Config"
    current_context: str = ""
    clusters: tuple[NamedEntry, ...] = ()
    users: tuple[NamedEntry, ...] = ()
    contexts: tuple[NamedEntry, ...] = ()


@dataclass(frozen=True)
class MergedKubeconfig:
    """Several files read as one; an entry is found by ("cluster", its name) and knows its place."""

    files: str
    current_context: str
    entries: Mapping[tuple[str, str], tuple[KubeconfigLocation, NamedEntry]] = field(repr=False)

    def select_context(self, asked: str) -> tuple[str, KubeconfigLocation, Context]:
        """The context asked for, or the current one."""
        name, key = (asked, "contexts") if asked else (self.current_context, "current-context")
        if not name:
            todo = f"Run `kubectl config use-context <name>`. The contexts are: {self._format_names('context')}."
            raise KubeconfigError(self.files, key, f"it is not set. {todo}")
        place, entry = self.find_entry("context", name, KubeconfigLocation(self.files), key)
        return name, place, entry.context

    def find_entry(
        self, part: str, name: str, by: KubeconfigLocation, key: str = ""
    ) -> tuple[KubeconfigLocation, NamedEntry]:
        """The cluster, user or context that is named there."""
        if (part, name) not in self.entries:
            what = f'there is no {part} "{name}"' if name else f"it names no {part}"
            raise by.error(key or part, f"{what}. The {part}s are: {self._format_names(part)}.")
        return self.entries[part, name]

    def _format_names(self, part: str) -> str:
        """All names of that part, for a message."""
        return ", ".join(name for of, name in self.entries if of == part) or "(none)"


def merge_files(files: Sequence[Path]) -> MergedKubeconfig:
    """The files as one: the first to set an entry or current-context wins, as in kubectl."""
    current, entries = "", dict[tuple[str, str], tuple[KubeconfigLocation, NamedEntry]]()
    for file in files:
        document = _parse_file(file)
        current = current or document.current_context
        for part, found in (
            ("cluster", document.clusters),
            ("user", document.users),
            ("context", document.contexts),
        ):
            for entry in found:
                entries.setdefault(
                    (part, entry.name),
                    (KubeconfigLocation(str(file), f"{part}s[name={entry.name}].{part}"), entry),
                )
    return MergedKubeconfig(os.pathsep.join(map(str, files)), current, entries)


def _parse_file(file: Path) -> KubeconfigDocument:
    """The file with every type checked. An empty file is an empty kubeconfig, as in kubectl."""
    place = KubeconfigLocation(str(file))
    raw = _read_yaml(place, read_file(place, "", str(file)))
    try:
        document = msgspec.convert(
            {} if raw is None else raw, KubeconfigDocument, strict=False
        )  # not strict: the text "true" is a bool here
    except msgspec.ValidationError as error:
        why, _, path = str(error).partition(" - at `$")
        raise place.error(
            _path_with_names(path.strip("`."), raw),
            f"the value has the wrong type: {why.replace('`', '')}",
        ) from None
    except RecursionError:
        raise place.error("", "it is nested too deeply to be a kubeconfig") from None
    if document.kind != "Config":
        raise place.error("kind", f"this is a {document.kind}, not a kubeconfig (kind: Config)")
    return document


class TextLoader(yaml.SafeLoader):
    """Reads every scalar as it is written and leaves out nulls: a name or password of digits stays one, as in kubectl."""

    yaml_constructors = yaml.SafeLoader.yaml_constructors | {
        f"tag:yaml.org,2002:{scalar}": yaml.SafeLoader.construct_scalar
        for scalar in ("bool", "int", "float", "timestamp")
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping without its nulls; an extension keeps its types, since it is some plugin's own data."""
        node.value = [
            (key, value) for key, value in node.value if value.tag != "tag:yaml.org,2002:null"
        ]
        built: dict[Any, Any] = super().construct_mapping(node, deep)
        for key, value in node.value:
            if key.value == "extension":
                built["extension"] = yaml.safe_load(yaml.serialize(value, Dumper=yaml.SafeDumper))
        return built


def _read_yaml(place: KubeconfigLocation, content: bytes) -> Any:
    """The YAML in the file. The parser's own words are left out: they quote the line, which may hold a secret."""
    try:
        return yaml.load(content, TextLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "some line"
        todo = "Check the indentation there, and put quotes around values that begin with one of * & ! % @ or hold a colon."
        raise place.error("", f"it is not valid YAML at {where}. {todo}") from None
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise place.error(
            "", "it is not YAML at all: perhaps a binary file, or not UTF-8"
        ) from None


def _path_with_names(path: str, document: Any) -> str:
    """Msgspec's path with names for numbers: clusters[0].cluster.server -> clusters[name=kind].cluster.server."""

    def name_of(match: re.Match[str]) -> str:
        entry = document[match[1]][int(match[2])]
        name = entry.get("name") if isinstance(entry, dict) else None
        return f"{match[1]}[name={name}]" if isinstance(name, str) else match[0]

    return re.sub(r"^(clusters|users|contexts)\[(\d+)\]", name_of, path)


def read_file(place: KubeconfigLocation, key: str, file: str) -> bytes:
    """The bytes of a file that a kubeconfig names, or of the kubeconfig itself."""
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "this is not a file name"
        raise place.error(
            key,
            f"it cannot be read: {why}" if file == place.file else f"{file} cannot be read: {why}",
        ) from error


def decode_base64(place: KubeconfigLocation, key: str, value: str) -> bytes:
    """The bytes behind a `*-data` value, which may be folded over lines."""
    try:
        return base64.b64decode("".join(value.split()), validate=True)
    except ValueError:
        raise place.error(key, "the value is not valid base64") from None
