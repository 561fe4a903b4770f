"""The page of what variables and files tell the manager, from the classes that read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

from msgspec import Meta, Struct, UnsetType
from msgspec.structs import FieldInfo, fields

from vsphere_operators.kinds.vmgroup.limits_file import LimitsFile
from vsphere_operators.settings.environment import SERVER_KEYS, Environment
from vsphere_operators.vcenters.config import File
from vsphere_operators.vsphere.credentials import CERTIFICATE, EXTENSION, KEY, LOOK_SECONDS, PAIRS, TOKEN

from .page import code, page, table

WORDS = {str: "string", int: "integer", bool: "bool"}
ENVIRONMENT = """
One vCenter can be named by variables: either set of them. If both are complete and differ, the first is used and the log says so. If one is
not complete, the other is used; what neither has, the manager names and ends. With nothing set at all it runs, and objects that need
a vCenter say what to set.
"""
INTRODUCTION = """
What the manager is told by variables and files. [Flags](flags.md) names them. What is wrong with a YAML file, the manager says with its
line, and ends. A file that is changed later takes effect by itself: with other vCenters or limits the manager starts anew, in the same
process; what cannot be used is told in the log, and changes nothing.
"""
VCENTERS = """
`-vcenters=FILE`. How to use it: [several vCenters](../howto/several-vcenters.md). Relative paths are relative to the file.
"""
LIMITS = """
`-vmgroup-limits=FILE`. The first entry that fits a namespace counts; a namespace that none fits may use everything.
"""
DIRECTORY = """
`-vcenter-credentials=DIRECTORY`, and `credentials` of an entry above. A mounted Secret, for example. The first row of which all files are
there counts. The files are looked at every {seconds:g} s while somebody waits for a change, so what is changed is taken without a restart.
"""
ADDRESS = """
With `-vcenter-credentials`, the address of the vCenter is the first of these files that is there: {files}; else it comes from the
variables of the same names. Another one, or one that comes after the manager, is seen within seconds, and the manager starts anew with it.
"""


def rows(kind: type[Struct], prefix: str) -> Iterator[tuple[str, ...]]:
    """A row for each key, and for those inside it."""
    for each in fields(kind):
        bare, meta = unwrapped(each.type)
        inner, suffix = item_of(bare)
        needed = "**required**. " if each.required else ""
        yield code(f"{prefix}{each.encode_name}"), named(bare), f"{needed}{described(meta, kind, each)}"
        if isinstance(inner, type) and issubclass(inner, Struct):
            yield from rows(inner, f"{prefix}{each.encode_name}{suffix}.")


def unwrapped(declared: Any) -> tuple[Any, Meta | None]:
    """The type without what stands around it, and its description."""
    meta = None
    if get_origin(declared) is Annotated:
        declared, meta = get_args(declared)[:2]
    kept = [each for each in get_args(declared) if each is not UnsetType]
    return (kept[0] if UnsetType in get_args(declared) and len(kept) == 1 else declared), meta


def item_of(declared: Any) -> tuple[Any, str]:
    """What a list holds, with the brackets for its path; else the type itself."""
    return (get_args(declared)[0], "[]") if get_origin(declared) is tuple else (declared, "")


def named(declared: Any) -> str:
    """A type in words."""
    if get_origin(declared) is tuple:
        return f"list of {named(get_args(declared)[0])}"
    if get_origin(declared) is dict:
        return f"map of {named(get_args(declared)[1])}"
    return WORDS.get(declared, "mapping")


def described(meta: Meta | None, kind: type[Struct], declared: FieldInfo) -> str:
    """What the key means; every one has to say so."""
    if meta is None or not meta.description:
        raise ValueError(f"{kind.__name__}.{declared.name} has no description: Annotated[..., Meta(description=...)]")
    return meta.description


def environment() -> Iterator[tuple[str, ...]]:
    """The two sets of variables beside each other."""
    variables = Environment()
    for what, first, second in zip(
        ("the vCenter", "the user", "the password"), variables.govmomi_login.variable_names, variables.vc_login.variable_names, strict=True
    ):
        yield what, code(first), code(second)


def credentials() -> str:
    """The table of the files in a directory of credentials, the one that counts first at the top."""
    ways = [
        (code(TOKEN), "a bearer token: the XML of a SAML assertion"),
        (
            ", ".join(map(code, (CERTIFICATE, KEY, EXTENSION))),
            "the certificate of a registered extension, its key, and the extension's name",
        ),
        *((", ".join(map(code, pair)), "a user and a password") for pair in PAIRS),
    ]
    return table(("files", "what"), ways)


def made() -> str:
    """The page."""
    head = ("key", "type", "what")
    return page(
        "Settings in variables and files",
        INTRODUCTION,
        "## One vCenter from the environment",
        ENVIRONMENT,
        table(("", "set", "or"), environment()),
        "## The list of vCenters",
        VCENTERS,
        table(head, rows(File, "")),
        "## Limits of VmGroups",
        LIMITS,
        table(head, rows(LimitsFile, "")),
        "## A directory of credentials",
        DIRECTORY.format(seconds=LOOK_SECONDS),
        credentials(),
        ADDRESS.format(files=", ".join(map(code, SERVER_KEYS))),
    )
