"""Names in generated code: of fields, classes and modules."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, count

# What annotations use. A field of such a name would hide it in the body of its class.
_ANNOTATION_NAMES = frozenset({"str", "int", "float", "bool", "bytes", "list", "dict", "datetime"})
_OBJECT_ATTRIBUTES = frozenset(
    [
        *("definition", "key", "decode", "encode", "encode_fields"),
        *("spec_type", "status_type", "micro_times"),
    ]
)
_UNCHANGED_ENDINGS = ("ss", "us", "is", "ics")
_MIN_PLURAL_LENGTH = 5


def field_names(
    wire_names: Sequence[str], reserved: Collection[str], *, is_object: bool = False
) -> dict[str, str]:
    """The Python name of each field of a class: its name on the wire wherever Python allows it."""
    unavailable = {*reserved, *_ANNOTATION_NAMES, *(_OBJECT_ATTRIBUTES if is_object else ())}
    names = {name: name for name in wire_names if _is_usable(name) and name not in unavailable}
    taken = set(names.values())
    for wire_name in wire_names:
        if wire_name in names:
            continue
        base = re.sub(r"[^A-Za-z0-9]+", "_", wire_name).strip("_")
        if not base or base[0].isdigit():
            base = f"field_{base}".rstrip("_")
        for name in _with_numbers(base):
            if _is_usable(name) and name not in unavailable and name not in taken:
                break
        names[wire_name] = name
        taken.add(name)
    return {name: names[name] for name in wire_names}


def _with_numbers(base: str) -> Iterator[str]:
    yield base
    yield f"{base}_"
    yield from (f"{base}_{number}" for number in count(2))


def _is_usable(name: str) -> bool:
    # Python normalizes other letters, and mangles or hides names with leading underscores.
    return (
        name.isascii()
        and name.isidentifier()
        and not keyword.iskeyword(name)
        and not name.startswith("_")
    )


def kind_class_name(kind: str, taken: Collection[str]) -> str:
    """The name of the kind if possible."""
    name = to_camel_case(kind)
    return _first_free(chain([name], _with_numbers(f"{name}Kind")), taken)


def class_name(path: Sequence[str], taken: Collection[str], kind: str) -> str:
    """The shortest name for the schema at a path that is not taken yet."""
    parts = [name for part in path if (name := to_camel_case(part))]
    suffixes = ["".join(parts[-length:]) for length in range(1, len(parts) + 1)]
    return _first_free(chain(suffixes, _with_numbers(kind + "".join(parts))), taken)


def _first_free(candidates: Iterator[str], taken: Collection[str]) -> str:
    return next(
        name
        for name in candidates
        if _is_usable(name) and name not in taken and not hasattr(builtins, name)
    )


def to_camel_case(text: str) -> str:
    parts = re.findall(r"[A-Za-z0-9]+", text)
    return "".join(part[0].upper() + part[1:] for part in parts)


def singularize(name: str) -> str:
    """The name of one item of a list: rules, rule; addresses, address; policies, policy."""
    if (
        len(name) < _MIN_PLURAL_LENGTH
        or not name.endswith("s")
        or name.endswith(_UNCHANGED_ENDINGS)
    ):
        return name
    if name.endswith("ies"):
        return f"{name[:-3]}y"
    if name.endswith(("sses", "xes", "ches", "shes")):
        return name[:-2]
    return name[:-1]


def module_name(*parts: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", "_".join(parts).lower()).strip("_")
