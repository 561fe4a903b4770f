"""The page of settings in environment variables and files, from the classes that read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

from msgspec import Meta, Struct, UnsetType
from msgspec.structs import FieldInfo, fields

from vsphere_operators.kinds.vmgroup.limits import LimitsFile
from vsphere_operators.settings.environment import SERVER_KEYS, Environment
from vsphere_operators.vcenters.config import VCenterFile
from vsphere_operators.vsphere.credentials import (
    CERTIFICATE_FILE,
    EXTENSION_KEY_FILE,
    KEY_FILE,
    POLL_SECONDS,
    TOKEN_FILE,
    USER_PASSWORD_FILES,
)

from .page import code, page, table

_TYPE_NAMES = {str: "string", int: "integer", bool: "bool"}
_ENVIRONMENT_TEXT = """
Either set of variables configures one vCenter. If both sets are complete and differ, the manager
uses the first and logs a warning. If one is incomplete, it uses the other. If both are incomplete,
it names the missing variables and exits. Without any variable it runs, and objects that need a
vCenter report what to set.
"""
_INTRODUCTION = """
Settings of the manager in environment variables and files; [flags](flags.md) name the files. For
an invalid YAML file the manager prints the line and exits. A file that changes later takes effect
automatically: with other vCenters or limits the manager restarts inside the same process. If the
new content is invalid, the manager logs the error and keeps the old settings.
"""
_VCENTERS_TEXT = """
`-vcenters=FILE`. See [several vCenters](../howto/several-vcenters.md). Relative paths are relative
to the file.
"""
_LIMITS_TEXT = """
`-vmgroup-limits=FILE`. The first entry that matches a namespace applies. A namespace without an
entry has no limits.
"""
_DIRECTORY_TEXT = """
`-vcenter-credentials=DIRECTORY`, and `credentials` of an entry above, for example a mounted Secret.
The first row of which all files exist applies. While a login waits for a change, the manager reads
the files every {seconds:g} s, so a change needs no restart.
"""
_ADDRESS_TEXT = """
With `-vcenter-credentials`, the address of the vCenter is the first of these files that exists:
{files}; otherwise it comes from the variables of the same names. The manager notices a new address
within seconds and restarts with it.
"""


def _key_rows(kind: type[Struct], prefix: str) -> Iterator[tuple[str, ...]]:
    """A row for each key, and for the keys inside it."""
    for field in fields(kind):
        bare, meta = _unwrap_type(field.type)
        inner, suffix = _item_type(bare)
        required = "**required**. " if field.required else ""
        yield (
            code(f"{prefix}{field.encode_name}"),
            _type_name(bare),
            f"{required}{_get_description(meta, kind, field)}",
        )
        if isinstance(inner, type) and issubclass(inner, Struct):
            yield from _key_rows(inner, f"{prefix}{field.encode_name}{suffix}.")


def _unwrap_type(declared: Any) -> tuple[Any, Meta | None]:
    """The type without Annotated and UnsetType, and its description."""
    meta = None
    if get_origin(declared) is Annotated:
        declared, meta = get_args(declared)[:2]
    types = [argument for argument in get_args(declared) if argument is not UnsetType]
    return (types[0] if UnsetType in get_args(declared) and len(types) == 1 else declared), meta


def _item_type(declared: Any) -> tuple[Any, str]:
    """The type of the items of a list, with the brackets for its path; else the type itself."""
    return (get_args(declared)[0], "[]") if get_origin(declared) is tuple else (declared, "")


def _type_name(declared: Any) -> str:
    if get_origin(declared) is tuple:
        return f"list of {_type_name(get_args(declared)[0])}"
    if get_origin(declared) is dict:
        return f"map of {_type_name(get_args(declared)[1])}"
    return _TYPE_NAMES.get(declared, "mapping")


def _get_description(meta: Meta | None, kind: type[Struct], declared: FieldInfo) -> str:
    if meta is None or not meta.description:
        raise ValueError(
            f"{kind.__name__}.{declared.name} has no description: "
            "add Annotated[..., Meta(description=...)]"
        )
    return meta.description


def _environment_rows() -> Iterator[tuple[str, ...]]:
    """The two sets of variables, side by side."""
    variables = Environment()
    for title, first, second in zip(
        ("address", "user", "password"),
        variables.govmomi_login.variable_names,
        variables.vc_login.variable_names,
        strict=True,
    ):
        yield title, code(first), code(second)


def _credentials_table() -> str:
    """The files of a directory of credentials, in the order of precedence."""
    methods = [
        (code(TOKEN_FILE), "a bearer token: a SAML assertion as XML"),
        (
            ", ".join(map(code, (CERTIFICATE_FILE, KEY_FILE, EXTENSION_KEY_FILE))),
            "the certificate of a registered extension, its key, and the extension's name; [needs "
            "port 80 of vCenter](../howto/tls.md#log-in-with-a-certificate)",
        ),
        *((", ".join(map(code, pair)), "a user and a password") for pair in USER_PASSWORD_FILES),
    ]
    return table(("files", "credentials"), methods)


def render() -> str:
    columns = ("key", "type", "description")
    return page(
        "Settings in environment variables and files",
        _INTRODUCTION,
        "## One vCenter from the environment",
        _ENVIRONMENT_TEXT,
        table(("", "first set", "second set"), _environment_rows()),
        "## The list of vCenters",
        _VCENTERS_TEXT,
        table(columns, _key_rows(VCenterFile, "")),
        "## Limits of VmGroups",
        _LIMITS_TEXT,
        table(columns, _key_rows(LimitsFile, "")),
        "## A directory of credentials",
        _DIRECTORY_TEXT.format(seconds=POLL_SECONDS),
        _credentials_table(),
        _ADDRESS_TEXT.format(files=", ".join(map(code, SERVER_KEYS))),
    )
