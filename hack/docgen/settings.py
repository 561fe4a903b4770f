"""The page of what variables and files tell the manager, from the classes that read them."""

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

TYPE_NAMES = {str: "string", int: "integer", bool: "bool"}
ENVIRONMENT_TEXT = """
One vCenter can be named by variables: either set of them. If both are complete and differ, the first is used and the log says so. If one is
not complete, the other is used; what neither has, the manager names and ends. With nothing set at all it runs, and objects that need
a vCenter say what to set.
"""
INTRODUCTION = """
What the manager is told by variables and files. [Flags](flags.md) names them. What is wrong with a YAML file, the manager says with its
line, and ends. A file that is changed later takes effect by itself: with other vCenters or limits the manager starts anew, in the same
process; what cannot be used is told in the log, and changes nothing.
"""
VCENTERS_TEXT = """
`-vcenters=FILE`. How to use it: [several vCenters](../howto/several-vcenters.md). Relative paths are relative to the file.
"""
LIMITS_TEXT = """
`-vmgroup-limits=FILE`. The first entry that fits a namespace counts; a namespace that none fits may use everything.
"""
DIRECTORY_TEXT = """
`-vcenter-credentials=DIRECTORY`, and `credentials` of an entry above. A mounted Secret, for example. The first row of which all files are
there counts. The files are looked at every {seconds:g} s while somebody waits for a change, so what is changed is taken without a restart.
"""
ADDRESS_TEXT = """
With `-vcenter-credentials`, the address of the vCenter is the first of these files that is there: {files}; else it comes from the
variables of the same names. Another one, or one that comes after the manager, is seen within seconds, and the manager starts anew with it.
"""


def key_rows(kind: type[Struct], prefix: str) -> Iterator[tuple[str, ...]]:
    """A row for each key, and for those inside it."""
    for each in fields(kind):
        bare, meta = unwrap_type(each.type)
        inner, suffix = item_type(bare)
        needed = "**required**. " if each.required else ""
        yield (
            code(f"{prefix}{each.encode_name}"),
            type_name(bare),
            f"{needed}{get_description(meta, kind, each)}",
        )
        if isinstance(inner, type) and issubclass(inner, Struct):
            yield from key_rows(inner, f"{prefix}{each.encode_name}{suffix}.")


def unwrap_type(declared: Any) -> tuple[Any, Meta | None]:
    """The type without what stands around it, and its description."""
    meta = None
    if get_origin(declared) is Annotated:
        declared, meta = get_args(declared)[:2]
    kept = [each for each in get_args(declared) if each is not UnsetType]
    return (kept[0] if UnsetType in get_args(declared) and len(kept) == 1 else declared), meta


def item_type(declared: Any) -> tuple[Any, str]:
    """What a list holds, with the brackets for its path; else the type itself."""
    return (get_args(declared)[0], "[]") if get_origin(declared) is tuple else (declared, "")


def type_name(declared: Any) -> str:
    """A type in words."""
    if get_origin(declared) is tuple:
        return f"list of {type_name(get_args(declared)[0])}"
    if get_origin(declared) is dict:
        return f"map of {type_name(get_args(declared)[1])}"
    return TYPE_NAMES.get(declared, "mapping")


def get_description(meta: Meta | None, kind: type[Struct], declared: FieldInfo) -> str:
    """What the key means; every one has to say so."""
    if meta is None or not meta.description:
        raise ValueError(
            f"{kind.__name__}.{declared.name} has no description: Annotated[..., Meta(description=...)]"
        )
    return meta.description


def environment_rows() -> Iterator[tuple[str, ...]]:
    """The two sets of variables beside each other."""
    variables = Environment()
    for what, first, second in zip(
        ("the vCenter", "the user", "the password"),
        variables.govmomi_login.variable_names,
        variables.vc_login.variable_names,
        strict=True,
    ):
        yield what, code(first), code(second)


def credentials_table() -> str:
    """The table of the files in a directory of credentials, the one that counts first at the top."""
    ways = [
        (code(TOKEN_FILE), "a bearer token: the XML of a SAML assertion"),
        (
            ", ".join(map(code, (CERTIFICATE_FILE, KEY_FILE, EXTENSION_KEY_FILE))),
            "the certificate of a registered extension, its key, and the extension's name",
        ),
        *((", ".join(map(code, pair)), "a user and a password") for pair in USER_PASSWORD_FILES),
    ]
    return table(("files", "what"), ways)


def render() -> str:
    """The page."""
    head = ("key", "type", "what")
    return page(
        "Settings in variables and files",
        INTRODUCTION,
        "## One vCenter from the environment",
        ENVIRONMENT_TEXT,
        table(("", "set", "or"), environment_rows()),
        "## The list of vCenters",
        VCENTERS_TEXT,
        table(head, key_rows(VCenterFile, "")),
        "## Limits of VmGroups",
        LIMITS_TEXT,
        table(head, key_rows(LimitsFile, "")),
        "## A directory of credentials",
        DIRECTORY_TEXT.format(seconds=POLL_SECONDS),
        credentials_table(),
        ADDRESS_TEXT.format(files=", ".join(map(code, SERVER_KEYS))),
    )
