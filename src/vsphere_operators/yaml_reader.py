"""Converts the YAML of one file into typed values, and explains each error with its line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import yaml
from msgspec import Struct

from kubewright.errors import ConfigError

T = TypeVar("T", bound=Struct)
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
# By the type in an error of msgspec.
_TYPE_DESCRIPTIONS = _TAG_DESCRIPTIONS | {
    "int": "a whole number (digits only)",
    "array": "a list",
    "object": "a mapping",
}
_TRUE_VALUES = frozenset({"true", "yes", "on"})


class _ValuePosition(NamedTuple):
    line: int
    type_description: str


class _NoAliasLoader(yaml.SafeLoader):
    """Rejects aliases: a few lines of them can expand to more values than fit in memory."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem="aliases (*name) are not allowed; write the value out", problem_mark=mark
            )
        return super().compose_node(parent, index)


class YamlReader(Generic[T]):
    """Converts the YAML of one file into values, and records the line of each."""

    def __init__(
        self, file: str, root_type: type[T], mapping_types: Mapping[str, type[Struct]]
    ) -> None:
        self._file, self._root_type, self._mapping_types = file, root_type, mapping_types
        self._positions: dict[str, _ValuePosition] = {"$": _ValuePosition(1, "nothing")}

    def decode(self, data: bytes) -> T:
        root = self._parse(data)
        if root is None:
            first_key = self._root_type.__struct_fields__[0]
            raise self.build_error(
                "$", f"the file is empty; it must begin with `{first_key}:` and a list below it"
            )
        try:
            content = msgspec.convert(self._convert_value(root, "$"), self._root_type)
        except msgspec.ValidationError as error:
            raise self._explain_validation_error(str(error)) from None
        return content

    def _parse(self, data: bytes) -> yaml.Node | None:
        try:
            loader = _NoAliasLoader(data)
            return loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = f" line {mark.line + 1}" if mark else ""
            raise ConfigError(f"{self._file}{line}: {_describe_yaml_error(error)}") from None
        except (yaml.YAMLError, ValueError, RecursionError):
            raise ConfigError(
                f"{self._file}: is not YAML: it may be binary, not UTF-8, or nested too deeply"
            ) from None

    def _convert_value(self, node: yaml.Node, path: str, line: int = 0) -> Any:
        # An error in a value of a mapping is reported at the line of its key.
        self._positions[path] = _ValuePosition(
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
        mapping: dict[str, Any] = {}
        for key, value in node.value:
            value_path, line = f"{path}.{key.value}", key.start_mark.line + 1
            if _describe_type(key) != "a string":
                raise self.build_error(path, "a key must be a string; put it in quotes", line)
            if "`" in key.value:
                # msgspec quotes keys with it, so its messages could not be parsed.
                raise self.build_error(path, "a key must not contain `", line)
            if key.value in mapping:
                first_line = self._positions[value_path].line
                raise self.build_error(
                    path,
                    f"the key `{key.value}` occurs twice, first in line {first_line}; remove one",
                    line,
                )
            mapping[key.value] = self._convert_value(value, value_path, line)
        return mapping

    def _explain_validation_error(self, error: str) -> ConfigError:
        """Translate a message of msgspec: the line, the path in the file, and what to do."""
        problem, path = error, "$"
        if located := re.fullmatch(r"(.*) - at `(\$[^`]*)`", error, re.DOTALL):
            problem, path = located[1], located[2]
        if missing := re.fullmatch(r"Object missing required field `(.*)`", problem):
            return self.build_error(path, f"`{missing[1]}` is missing")
        if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", problem, re.DOTALL):
            mapping_type = self._mapping_types[re.sub(r"\[\d+\]", "[]", path)]
            # Not `password: ...`: the log would redact what follows.
            return self.build_error(
                path,
                f"there is no key `{unknown[1]}`; "
                f"the keys here are {', '.join(mapping_type.__struct_fields__)}",
                self._positions[f"{path}.{unknown[1]}"].line,
            )
        expected = re.match(r"Expected `(\w+)", problem)
        return self._build_type_error(
            self._resolve_path(path),
            _TYPE_DESCRIPTIONS.get(expected[1], expected[1]) if expected else "something else",
        )

    def _resolve_path(self, path: str) -> str:
        # In a mapping of strings, msgspec writes [...] for the key.
        mapping_path = path.removesuffix("[...]")
        if mapping_path == path:
            return path
        return next(
            value_path
            for value_path, position in self._positions.items()
            if value_path.startswith(f"{mapping_path}.") and position.type_description != "a string"
        )

    def _build_type_error(self, path: str, expected: str) -> ConfigError:
        actual = self._positions[path].type_description
        hint = ""
        if actual == "nothing":
            hint = "; write a value, or leave the key out"
        elif expected == "a string" and actual not in ("a list", "a mapping"):
            hint = "; put it in quotes"
        return self.build_error(path, f"expected {expected}, got {actual}{hint}")

    def build_error(self, path: str, message: str, line: int = 0) -> ConfigError:
        """The error for the value at this path."""
        field = f"{path.removeprefix('$.')}: " if path != "$" else ""
        line = line or self._positions[path].line
        return ConfigError(f"{self._file} line {line}: {field}{message}")


def _describe_yaml_error(error: yaml.MarkedYAMLError) -> str:
    # Not the parser's own message: it quotes the line, which may contain a secret.
    problem = error.problem or ""
    if problem.startswith("aliases"):
        return problem
    if error.context == "expected a single document in the stream":
        return "a second document begins here; put everything into one list, without ---"
    if "'\\t'" in problem:
        return "is not valid YAML: indent with spaces, not with tabs"
    return (
        "is not valid YAML; check the indentation, and put quotes around values that begin "
        "with one of * & ! % @ [ { or contain a colon"
    )


def _describe_type(node: yaml.Node) -> str:
    return _TAG_DESCRIPTIONS.get(node.tag.removeprefix(_YAML_TAG), "a value with a tag")


def _convert_scalar(text: str, type_description: str) -> Any:
    match type_description:
        case "a string":
            return text
        case "a number" if text.isascii() and text.isdecimal():
            return int(text)
        case "true or false":
            return text.lower() in _TRUE_VALUES
        case "nothing":
            return None
        case _:
            # A fraction, a sign, a date or a tag. No field accepts them; msgspec rejects object().
            return object()
