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
MAX_FILE_BYTES = 256 * 1024
_YAML_TAG = "tag:yaml.org,2002:"
_TAG_DESCRIPTIONS = {
    "str": "a string",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "timestamp": "a date",
    "null": "nothing",
    "seq": "a list",
    "map": "a mapping",
}
_TYPE_DESCRIPTIONS = {
    "str": "a string",
    "int": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
}
_TRUE_VALUES = frozenset({"true", "yes", "on"})


@dataclass(frozen=True)
class FileFormat(Generic[T]):
    """What a file has to look like. `keys` has the type of each mapping by its path, `faults` finds what is wrong beyond types."""

    flag: str
    description: str
    root_type: type[T]
    mapping_types: Mapping[str, type[Struct]]
    find_errors: Callable[[T], Iterable[tuple[str, str]]]

    def read(self, file: str) -> T:
        """The file's content, typed and checked."""
        return YamlReader(file, self).decode(self.read_bytes(file))

    def read_bytes(self, file: str) -> bytes:
        """The bytes of the file, if it can be such a one."""
        try:
            with Path(file).open("rb") as opened:
                data = opened.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "this is not a file name"
            raise ConfigError(
                f"{file}: it cannot be read: {why}. Check the path after {self.flag}."
            ) from None
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError(
                f"{file}: it is larger than {MAX_FILE_BYTES // 1024} KiB, which no {self.description} needs. Check the path after {self.flag}."
            )
        return data


class ValuePosition(NamedTuple):
    """Where a value stands, and what it is in the words of a person."""

    line: int
    type_description: str


class NoAliasLoader(yaml.SafeLoader):
    """YAML without aliases: a few lines of them can stand for more values than any memory holds."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node, if it is written out."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem="aliases (*name) are not taken here; write the value out", problem_mark=mark
            )
        return super().compose_node(parent, index)


class YamlReader(Generic[T]):
    """Turns one file's YAML into values, and knows the line of each on the way."""

    def __init__(self, file: str, form: FileFormat[T]) -> None:
        self.file, self._file_format = file, form
        self._positions: dict[str, ValuePosition] = {"$": ValuePosition(1, "nothing")}

    def decode(self, data: bytes) -> T:
        """All of it, typed and checked."""
        root, first = self.parse(data), self._file_format.root_type.__struct_fields__[0]
        if root is None:
            raise self._build_error(
                "$", f"the file is empty; it has to begin with `{first}:` and a list below it"
            )
        try:
            found = msgspec.convert(self._convert_value(root, "$"), self._file_format.root_type)
        except msgspec.ValidationError as error:
            raise self._explain_validation_error(str(error)) from None
        for path, why in self._file_format.find_errors(found):
            raise self._build_error(path, why)
        return found

    def parse(self, data: bytes) -> yaml.Node | None:
        """The file's one document. The parser's snippet is left out: it quotes the line, which may hold a secret."""
        try:
            loader = NoAliasLoader(data)
            return loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f" line {mark.line + 1}" if mark else ""
            raise ConfigError(f"{self.file}{where}: {_describe_yaml_error(error)}") from None
        except (yaml.YAMLError, ValueError, RecursionError):
            raise ConfigError(
                f"{self.file}: it is not YAML: perhaps a binary file, not UTF-8, or nested without end"
            ) from None

    def _convert_value(self, node: yaml.Node, path: str, line: int = 0) -> Any:
        """The value of the node, its line noted; a mapping's value is at the line of its key."""
        self._positions[path] = ValuePosition(
            line or node.start_mark.line + 1, _describe_type(node)
        )
        match node:
            case yaml.MappingNode():
                return self._convert_mapping(node, path)
            case yaml.SequenceNode():
                return [
                    self._convert_value(item, f"{path}[{index}]")
                    for index, item in enumerate(node.value)
                ]
            case _:
                return _convert_scalar(node.value, self._positions[path].type_description)

    def _convert_mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        """The mapping, if its keys are strings and each is there once."""
        made: dict[str, Any] = {}
        for key, value in node.value:
            here, line = f"{path}.{key.value}", key.start_mark.line + 1
            if _describe_type(key) != "a string":
                raise self._build_error(path, "a key has to be a string; put it in quotes", line)
            if "`" in key.value:
                # msgspec's messages put keys between these.
                raise self._build_error(path, "no key here has a ` in it", line)
            if key.value in made:
                raise self._build_error(
                    path,
                    f"the key `{key.value}` is there twice, first in line {self._positions[here].line}; remove one",
                    line,
                )
            made[key.value] = self._convert_value(value, here, line)
        return made

    def _explain_validation_error(self, error: str) -> ConfigError:
        """What msgspec says, for a person: the line, where in the file, and what to do."""
        what, path = error, "$"
        if placed := re.fullmatch(r"(.*) - at `(\$[^`]*)`", error, re.DOTALL):
            what, path = placed[1], placed[2]
        if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
            return self._build_error(path, f"`{missing[1]}` is missing")
        if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what, re.DOTALL):
            known = ", ".join(
                self._file_format.mapping_types[re.sub(r"\[\d+\]", "[]", path)].__struct_fields__
            )
            # Not `password: ...`, which would be cut as if a password followed.
            return self._build_error(
                path,
                f"there is no key `{unknown[1]}`; the keys here are {known}",
                self._positions[f"{path}.{unknown[1]}"].line,
            )
        wanted = re.match(r"Expected `(\w+)", what)
        return self._build_type_error(
            self._resolve_path(path),
            _TYPE_DESCRIPTIONS.get(wanted[1], wanted[1]) if wanted else "something else",
        )

    def _resolve_path(self, path: str) -> str:
        """The path of a value of the wrong kind; inside a mapping of strings msgspec writes [...] for the key."""
        within = path.removesuffix("[...]")
        if within == path:
            return path
        return next(
            each
            for each, spot in self._positions.items()
            if each.startswith(f"{within}.") and spot.type_description != "a string"
        )

    def _build_type_error(self, path: str, wanted: str) -> ConfigError:
        """The error for a value of the wrong kind."""
        kind = self._positions[path].type_description
        hint = ""
        if kind == "nothing":
            hint = "; write a value, or leave the key out"
        elif wanted == "a string" and kind not in ("a list", "a mapping"):
            hint = "; put it in quotes"
        return self._build_error(path, f"expected {wanted}, got {kind}{hint}")

    def _build_error(self, path: str, why: str, line: int = 0) -> ConfigError:
        """The error for what stands at the path."""
        where = f"{path.removeprefix('$.')}: " if path != "$" else ""
        return ConfigError(f"{self.file} line {line or self._positions[path].line}: {where}{why}")


def _describe_yaml_error(error: yaml.MarkedYAMLError) -> str:
    """What is wrong with the YAML, without the parser's quotes of it."""
    problem = error.problem or ""
    if problem.startswith("aliases"):
        return problem
    if error.context == "expected a single document in the stream":
        return "a second document begins here; put all of it into one list, without ---"
    if "'\\t'" in problem:
        return "it is not valid YAML: indent with spaces, not with tabs"
    return "it is not valid YAML; check the indentation, and put quotes around values that begin with one of * & ! % @ [ { or hold a colon"


def _describe_type(node: yaml.Node) -> str:
    """What the value is, for a person."""
    match node:
        case yaml.MappingNode():
            return _TAG_DESCRIPTIONS["map"]
        case yaml.SequenceNode():
            return _TAG_DESCRIPTIONS["seq"]
        case _:
            return _TAG_DESCRIPTIONS.get(node.tag.removeprefix(_YAML_TAG), "a value with a tag")


def _convert_scalar(text: str, kind: str) -> Any:
    """The value that the text stands for; no key takes a fraction or a date, so that any number serves to be refused."""
    match kind:
        case "a string":
            return text
        case "a number" if text.isascii() and text.isdecimal():
            return int(text)
        case "true or false":
            return text.lower() in _TRUE_VALUES
        case "nothing":
            return None
        case _:
            return 0
