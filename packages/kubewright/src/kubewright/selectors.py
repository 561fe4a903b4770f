"""Label and field selectors as the API server understands them: parsed when they are declared, and
evaluated for the responses to our own writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, cast

from msgspec import Struct

from .errors import ConfigError

_Operator = Literal["=", "!=", "in", "notin", ">", "<", "exists", "!"]

_LABEL_SYNTAX = "key=value, key!=value, key in (a,b), key notin (a,b), key, !key, key>1 or key<1"
_LABEL_REQUIREMENT = re.compile(
    r"""(?x)
    \s* (?: (?P<absent>!) \s* (?P<absent_key>[^\s,=!<>()]+)
          | (?P<key>[^\s,=!<>()]+) \s*
            (?: (?P<operator>==|=|!=|>|<) \s* (?P<value>[^\s,=!<>()]*)
              | (?P<set_operator>in|notin) \s* \( (?P<values>[^()]*) \)
            )?
        )
    \s* (?: ,(?=\s*\S) | $ )
    """
)
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"(?=.{1,253}$)[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?")

_FIELD_SYNTAX = "field=value, field==value or field!=value"
# A comma, an equals sign or a backslash in a value has a backslash before it.
_FIELD_TERM = re.compile(
    r"\s*(?P<field>[A-Za-z0-9_.\-/\[\]]+)\s*(?P<operator>==|=|!=)"
    r"(?P<value>(?:[^,=\\]|\\[,=\\])*)(?:,(?=\s*\S)|$)"
)
_KEPT_FIELDS = ("metadata.name", "metadata.namespace")


class LabelRequirement(Struct, frozen=True):
    key: str
    operator: _Operator
    values: tuple[str, ...] = ()
    """Sorted, so that equal requirements are equal."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "!":
                return value is None
            case "=" | "in":
                return value in self.values
            case "!=" | "notin":
                # As in Kubernetes, an object without the label matches.
                return value not in self.values
            case ">" | "<":
                try:
                    number, limit = int(value or ""), int(self.values[0])
                except ValueError:
                    return False
                return number > limit if self.operator == ">" else number < limit

    def __str__(self) -> str:
        match self.operator:
            case "exists":
                return self.key
            case "!":
                return f"!{self.key}"
            case "in" | "notin":
                return f"{self.key} {self.operator} ({','.join(self.values)})"
        return f"{self.key}{self.operator}{self.values[0]}"


class LabelSelector(Struct, frozen=True):
    """All requirements must match; without any, every object does."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def parse_label_selector(text: str) -> LabelSelector:
    """Parse the syntax of `kubectl get -l`; raises ConfigError with the part that is wrong."""
    return LabelSelector(tuple(sorted(_label_requirements(text), key=str)))


def _label_requirements(text: str) -> Iterator[LabelRequirement]:
    for match in _matches_in_sequence(_LABEL_REQUIREMENT, text, "label", _LABEL_SYNTAX):
        key, values = match["absent_key"] or match["key"], list[str]()
        operator = "!" if match["absent"] else "exists"
        if match["operator"]:
            operator, values = match["operator"].replace("==", "="), [match["value"]]
        elif match["set_operator"]:
            operator = match["set_operator"]
            values = [value.strip() for value in match["values"].split(",")]
        _check_label_key(key, text)
        for value in values:
            if operator in "<>" and not re.fullmatch("[0-9]+", value):
                raise _selector_error(
                    "label", text, f'"{value}" after {operator} is not an integer'
                )
            if value and not _LABEL_NAME.fullmatch(value):
                raise _selector_error("label", text, f'"{value}" is not a valid label value')
        yield LabelRequirement(key, cast("_Operator", operator), tuple(sorted(set(values))))


def _check_label_key(key: str, text: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if not _LABEL_NAME.fullmatch(name) or (slash and not _LABEL_PREFIX.fullmatch(prefix)):
        raise _selector_error("label", text, f'"{key}" is not a valid label key')


class FieldRequirement(Struct, frozen=True):
    field: str
    operator: Literal["=", "!="]
    value: str

    def __str__(self) -> str:
        escaped = re.sub(r"([,=\\])", r"\\\1", self.value)
        return f"{self.field}{self.operator}{escaped}"


class FieldSelector(Struct, frozen=True):
    """All requirements must match. Each kind has its own fields, which only the server knows."""

    requirements: tuple[FieldRequirement, ...] = ()

    def matches(self, *, name: str, namespace: str) -> bool | None:
        """Whether an object matches; None if that depends on a field other than these two."""
        values = dict(zip(_KEPT_FIELDS, (name, namespace), strict=True))
        is_known = True
        for requirement in self.requirements:
            value = values.get(requirement.field)
            if value is None:
                is_known = False
            elif (value == requirement.value) != (requirement.operator == "="):
                return False
        return True if is_known else None

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def parse_field_selector(text: str) -> FieldSelector:
    """Parse the syntax of `kubectl get --field-selector`; raises ConfigError if it is wrong."""
    matches = _matches_in_sequence(_FIELD_TERM, text, "field", _FIELD_SYNTAX)
    return FieldSelector(
        tuple(
            sorted(
                (
                    FieldRequirement(
                        match["field"],
                        "!=" if match["operator"] == "!=" else "=",
                        re.sub(r"\\([,=\\])", r"\1", match["value"]),
                    )
                    for match in matches
                ),
                key=str,
            )
        )
    )


class Selection(Struct, frozen=True):
    """The arguments of `select`: which objects of a kind are in a store, and what of them."""

    labels: LabelSelector = LabelSelector()
    fields: FieldSelector = FieldSelector()
    namespaces: tuple[str, ...] = ()
    """Empty for all namespaces."""
    transform: Callable[[Any], Any] | None = None
    metadata_only: bool = False

    def matches(self, labels: Mapping[str, str], *, name: str, namespace: str) -> bool | None:
        """Whether an object is selected; None if only the API server can decide it."""
        if not self.labels.matches(labels):
            return False
        if self.namespaces and namespace not in self.namespaces:
            return False
        return self.fields.matches(name=name, namespace=namespace)

    def __str__(self) -> str:
        transform = getattr(self.transform, "__name__", self.transform)
        parts = (
            str(self.labels),
            str(self.fields) and f"fields {self.fields}",
            " ".join(("namespaces", *self.namespaces)) if self.namespaces else "",
            f"transform {transform}" if transform else "",
            "metadata only" if self.metadata_only else "",
        )
        return "; ".join(part for part in parts if part)


def _matches_in_sequence(
    pattern: re.Pattern[str], text: str, what: str, syntax: str
) -> Iterator[re.Match[str]]:
    """The matches of a pattern that together make up the whole text."""
    position = 0
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            problem = f'cannot be parsed at "{text[position:].strip()}"'
            raise _selector_error(what, text, f"{problem}; write {syntax}, separated by commas")
        yield match
        position = match.end()


def _selector_error(what: str, text: str, problem: str) -> ConfigError:
    return ConfigError(f'{what} selector "{text}": {problem}')
