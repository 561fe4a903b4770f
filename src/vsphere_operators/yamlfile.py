"""A typed YAML file of settings: read, checked, and every fault told with the line that is wrong.

FORM = Form(flag="-vcenters", holds="list of vCenters", root=File, keys={"$": File, ...}, faults=faults)
FORM.read(file)                       # a File; ConfigError says which line, what is wrong with it, and what to do
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import yaml
from msgspec import Struct

from kubewright.errors import ConfigError

T = TypeVar("T", bound=Struct)
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
WANTED = {"str": "a string", "int": "a number", "bool": "true or false", "array": "a list", "object": "a mapping"}
TRUE = frozenset({"true", "yes", "on"})


@dataclass(frozen=True)
class Form(Generic[T]):
    """What a file has to look like. `keys` has the type of each mapping by its path, `faults` finds what is wrong beyond types."""

    flag: str
    holds: str
    root: type[T]
    keys: Mapping[str, type[Struct]]
    faults: Callable[[T], Iterable[tuple[str, str]]]

    def read(self, file: str) -> T:
        """The file's content, typed and checked."""
        return Reader(file, self).content(self.bytes_of(file))

    def bytes_of(self, file: str) -> bytes:
        """The bytes of the file, if it can be such a one."""
        try:
            with Path(file).open("rb") as opened:
                data = opened.read(LARGEST_BYTES + 1)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "this is not a file name"
            raise ConfigError(f"{file}: it cannot be read: {why}. Check the path after {self.flag}.") from None
        if len(data) > LARGEST_BYTES:
            raise ConfigError(
                f"{file}: it is larger than {LARGEST_BYTES // 1024} KiB, which no {self.holds} needs. Check the path after {self.flag}."
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


class Reader(Generic[T]):
    """Turns one file's YAML into values, and knows the line of each on the way."""

    def __init__(self, file: str, form: Form[T]) -> None:
        self.file, self.form = file, form
        self.spots: dict[str, Spot] = {"$": Spot(1, "nothing")}

    def content(self, data: bytes) -> T:
        """All of it, typed and checked."""
        root, first = self.parsed(data), self.form.root.__struct_fields__[0]
        if root is None:
            raise self.error("$", f"the file is empty; it has to begin with `{first}:` and a list below it")
        try:
            found = msgspec.convert(self.plain(root, "$"), self.form.root)
        except msgspec.ValidationError as error:
            raise self.in_words(str(error)) from None
        for path, why in self.form.faults(found):
            raise self.error(path, why)
        return found

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
            known = ", ".join(self.form.keys[re.sub(r"\[\d+\]", "[]", path)].__struct_fields__)
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
        return "a second document begins here; put all of it into one list, without ---"
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
    """The value that the text stands for; no key takes a fraction or a date, so that any number serves to be refused."""
    match kind:
        case "a string":
            return text
        case "a number" if text.isascii() and text.isdecimal():
            return int(text)
        case "true or false":
            return text.lower() in TRUE
        case "nothing":
            return None
        case _:
            return 0
