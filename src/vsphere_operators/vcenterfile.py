"""Several vCenters in one YAML file: read, checked, and every fault told with the line that is wrong.

    vcenters:
      - name: west
        server: vc-west.example.com           # a host, host:port, an IP or an https URL
        credentials: /etc/vcenters/west       # a directory with a file for user and password each
        ca: /etc/vcenters/west/ca.crt
        insecure: false
        defaults: {datacenter: DC0, cluster: C0, resourcePool: small, folder: vms, datastore: fast}
        namespaces: {names: ["team-a-*"], labels: {vcenter: west}}
      - name: rest                            # without namespaces: it serves all the rest
        server: 192.0.2.7
        credentials: /etc/vcenters/rest

Relative paths are relative to the file. No message quotes a server, since people write passwords into addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml
from msgspec import UNSET, Struct, UnsetType

from kubewright.errors import ConfigError

from .vcenter.address import Address, address_of

# Two thousand short entries fit in, and already take PyYAML two seconds.
LARGEST_BYTES = 256 * 1024
YAML_TAG = "tag:yaml.org,2002:"
KINDS = {
    "str": "a string",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "timestamp": "a date",
    "null": "nothing",
    "seq": "a list",
    "map": "a mapping",
}
WANTED = {"str": "a string", "bool": "true or false", "array": "a list", "object": "a mapping"}
TRUE = frozenset({"true", "yes", "on"})

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
DNS_NAME = re.compile(r"(?=.{1,254}$)\w([\w-]*\w)?(\.\w([\w-]*\w)?)*\.?", re.ASCII)
GLOB = re.compile(r"[-a-z0-9*?\[\]!]+", re.ASCII)
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?", re.ASCII)


class Defaults(Struct, frozen=True, forbid_unknown_fields=True):
    """Where things go when an object does not say; names as vCenter shows them, "" for no default."""

    datacenter: str = ""
    cluster: str = ""
    resourcePool: str = ""
    folder: str = ""
    datastore: str = ""


class Namespaces(Struct, frozen=True, forbid_unknown_fields=True):
    """Which namespaces a vCenter serves: those that one of the globs names, and those that carry all of the labels."""

    names: tuple[str, ...] = ()
    labels: dict[str, str] = {}


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """One vCenter as it stands in the file. UNSET, where None would let a key without a value pass for one that is absent."""

    name: str
    server: str
    credentials: str
    ca: str = ""
    insecure: bool | UnsetType = UNSET
    defaults: Defaults = Defaults()
    namespaces: Namespaces | UnsetType = UNSET


class File(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    vcenters: tuple[Entry, ...]


KEYS: dict[str, type[Struct]] = {
    "$": File,
    "$.vcenters[]": Entry,
    "$.vcenters[].defaults": Defaults,
    "$.vcenters[].namespaces": Namespaces,
}


def address(server: str, *, insecure: bool, ca_file: str) -> Address:
    """The address in what people write; ValueError says what is allowed, and never what was written."""
    try:
        found = address_of(server, insecure=insecure, ca_file="" if insecure else ca_file)
        if not DNS_NAME.fullmatch(found.host):
            ip_address(found.host)
        return found
    except ValueError:
        raise ValueError("it has to be a host, host:port, an IP address or an https URL, without a user or password in it") from None


def read(file: str) -> tuple[Entry, ...]:
    """The entries of the file; ConfigError has the line that is wrong."""
    return Reader(file).entries(contents(file))


def contents(file: str) -> bytes:
    """The bytes of the file, if it is one that can hold a list of vCenters."""
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(LARGEST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "this is not a file name"
        raise ConfigError(f"{file}: it cannot be read: {why}. Check the path after -vcenters.") from None
    if len(data) > LARGEST_BYTES:
        raise ConfigError(
            f"{file}: it is larger than {LARGEST_BYTES // 1024} KiB, which no list of vCenters needs. Check the path after -vcenters."
        )
    return data


class Spot(NamedTuple):
    """Where a value stands, and what it is in the words of a person."""

    line: int
    kind: str


class Loader(yaml.SafeLoader):
    """YAML without aliases: a few lines of them can stand for more values than any memory holds."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node, if it is written out."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not taken here; write the value out", problem_mark=mark)
        return super().compose_node(parent, index)


class Reader:
    """Turns one file's YAML into entries, and knows the line of each value on the way."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.spots: dict[str, Spot] = {"$": Spot(1, "nothing")}

    def entries(self, data: bytes) -> tuple[Entry, ...]:
        """The entries, typed and checked."""
        root = self.parsed(data)
        if root is None:
            raise self.error("$", "the file is empty; it has to begin with `vcenters:` and a list below it")
        try:
            found = msgspec.convert(self.plain(root, "$"), File)
        except msgspec.ValidationError as error:
            raise self.in_words(str(error)) from None
        for path, why in faults(found.vcenters):
            raise self.error(path, why)
        return found.vcenters

    def parsed(self, data: bytes) -> yaml.Node | None:
        """The file's one document. The parser's snippet is left out: it quotes the line, which may hold a secret."""
        try:
            loader = Loader(data)
            return loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f" line {mark.line + 1}" if mark else ""
            raise ConfigError(f"{self.file}{where}: {yaml_words(error)}") from None
        except (yaml.YAMLError, ValueError, RecursionError):
            raise ConfigError(f"{self.file}: it is not YAML: perhaps a binary file, not UTF-8, or nested without end") from None

    def plain(self, node: yaml.Node, path: str, line: int = 0) -> Any:
        """The value of the node, its line noted; a mapping's value is at the line of its key."""
        self.spots[path] = Spot(line or node.start_mark.line + 1, kind_of(node))
        match node:
            case yaml.MappingNode():
                return self.mapping(node, path)
            case yaml.SequenceNode():
                return [self.plain(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
            case _:
                return scalar(node.value, self.spots[path].kind)

    def mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        """The mapping, if its keys are strings and each is there once."""
        made: dict[str, Any] = {}
        for key, value in node.value:
            here, line = f"{path}.{key.value}", key.start_mark.line + 1
            if kind_of(key) != "a string":
                raise self.error(path, "a key has to be a string; put it in quotes", line)
            if "`" in key.value:
                # msgspec's messages put keys between these.
                raise self.error(path, "no key here has a ` in it", line)
            if key.value in made:
                raise self.error(path, f"the key `{key.value}` is there twice, first in line {self.spots[here].line}; remove one", line)
            made[key.value] = self.plain(value, here, line)
        return made

    def in_words(self, error: str) -> ConfigError:
        """What msgspec says, for a person: the line, where in the file, and what to do."""
        what, path = error, "$"
        if placed := re.fullmatch(r"(.*) - at `(\$[^`]*)`", error, re.DOTALL):
            what, path = placed[1], placed[2]
        if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
            return self.error(path, f"`{missing[1]}` is missing")
        if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what, re.DOTALL):
            known = ", ".join(KEYS[re.sub(r"\[\d+\]", "[]", path)].__struct_fields__)
            # Not `password: ...`, which would be cut as if a password followed.
            return self.error(path, f"there is no key `{unknown[1]}`; the keys here are {known}", self.spots[f"{path}.{unknown[1]}"].line)
        wanted = re.match(r"Expected `(\w+)", what)
        return self.unexpected(self.exact(path), WANTED.get(wanted[1], wanted[1]) if wanted else "something else")

    def exact(self, path: str) -> str:
        """The path of a value of the wrong kind; inside a mapping of strings msgspec writes [...] for the key."""
        within = path.removesuffix("[...]")
        if within == path:
            return path
        return next(each for each, spot in self.spots.items() if each.startswith(f"{within}.") and spot.kind != "a string")

    def unexpected(self, path: str, wanted: str) -> ConfigError:
        """The error for a value of the wrong kind."""
        kind = self.spots[path].kind
        hint = ""
        if kind == "nothing":
            hint = "; write a value, or leave the key out"
        elif wanted == "a string" and kind not in ("a list", "a mapping"):
            hint = "; put it in quotes"
        return self.error(path, f"expected {wanted}, got {kind}{hint}")

    def error(self, path: str, why: str, line: int = 0) -> ConfigError:
        """The error for what stands at the path."""
        where = f"{path.removeprefix('$.')}: " if path != "$" else ""
        return ConfigError(f"{self.file} line {line or self.spots[path].line}: {where}{why}")


def yaml_words(error: yaml.MarkedYAMLError) -> str:
    """What is wrong with the YAML, without the parser's quotes of it."""
    problem = error.problem or ""
    if problem.startswith("aliases"):
        return problem
    if error.context == "expected a single document in the stream":
        return "a second document begins here; put all vCenters into one list, without ---"
    if "'\\t'" in problem:
        return "it is not valid YAML: indent with spaces, not with tabs"
    return "it is not valid YAML; check the indentation, and put quotes around values that begin with one of * & ! % @ [ { or hold a colon"


def kind_of(node: yaml.Node) -> str:
    """What the value is, for a person."""
    match node:
        case yaml.MappingNode():
            return KINDS["map"]
        case yaml.SequenceNode():
            return KINDS["seq"]
        case _:
            return KINDS.get(node.tag.removeprefix(YAML_TAG), "a value with a tag")


def scalar(text: str, kind: str) -> Any:
    """The value that the text stands for; no key takes a number or a date, so that any number serves to be refused."""
    match kind:
        case "a string":
            return text
        case "true or false":
            return text.lower() in TRUE
        case "nothing":
            return None
        case _:
            return 0


def faults(entries: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    """What is wrong beyond types: the path, and what to do."""
    if not entries:
        yield "$.vcenters", "the list is empty; name a vCenter, or leave -vcenters out"
    for index, entry in enumerate(entries):
        path = f"$.vcenters[{index}]"
        yield from faults_of(entry, path)
        yield from clashes(entry, path, entries[:index])


def faults_of(entry: Entry, path: str) -> Iterator[tuple[str, str]]:
    """What is wrong with one entry by itself."""
    if not DNS_LABEL.fullmatch(entry.name):
        yield (
            f"{path}.name",
            f'"{entry.name}" is no name for a vCenter: use lower-case letters, digits and -, 63 at most, no - at either end',
        )
    try:
        address(entry.server, insecure=False, ca_file="")
    except ValueError as error:
        yield f"{path}.server", str(error)
    if not entry.credentials:
        yield f"{path}.credentials", "it is empty; name the directory that has the user and the password in files"
    if entry.namespaces is not UNSET:
        yield from faults_of_namespaces(entry.namespaces, f"{path}.namespaces")


def faults_of_namespaces(namespaces: Namespaces, path: str) -> Iterator[tuple[str, str]]:
    """What can fit no namespace."""
    if not namespaces.names and not namespaces.labels:
        yield path, "it serves no namespace; add `names` or `labels`, or leave `namespaces` out, to serve all the rest"
    for index, glob in enumerate(namespaces.names):
        if not GLOB.fullmatch(glob):
            words = f'"{glob}" fits no namespace' if glob else "it is empty and fits no namespace"
            yield f"{path}.names[{index}]", f"{words}: use lower-case letters, digits and -, and the globs * ? [..]"
    for key, value in namespaces.labels.items():
        if not key or not LABEL_VALUE.fullmatch(value):
            yield f"{path}.labels.{key}", "no namespace can have this label; globs work in `names` only"


def clashes(entry: Entry, path: str, before: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    """What an earlier entry has already."""
    mine = entry.namespaces
    for other in before:
        theirs = other.namespaces
        if entry.name == other.name:
            yield f"{path}.name", f'"{entry.name}" is the name of an earlier vCenter; give each its own'
        if mine is UNSET and theirs is UNSET:
            yield path, f'it has no `namespaces`, and so would serve all the rest, as "{other.name}" does; give one of them `namespaces`'
        if mine is UNSET or theirs is UNSET:
            continue
        for index, glob in enumerate(mine.names):
            if glob in theirs.names:
                yield f"{path}.namespaces.names[{index}]", f'"{glob}" belongs to "{other.name}" already; remove one of them'
        if mine.labels and mine.labels == theirs.labels:
            yield f"{path}.namespaces.labels", f'"{other.name}" has the same labels; change one of them'
