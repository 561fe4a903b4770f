"""The page of vCenter privileges, from the table that `manager doctor` checks."""

from __future__ import annotations

from collections.abc import Iterator

from vsphere_operators.vsphere.privileges import (
    ROLES,
    Role,
    format_permission_command,
    format_role_command,
)

from .page import code, page, table

_USER = "operators@vsphere.local"
_INTRODUCTION = """
What the manager's vCenter account needs. `manager doctor` checks the same table, and prints the
commands that grant what is missing. Tests run all kinds with an account that has exactly these
privileges, against a simulated vCenter that refuses each call that lacks one.

A permission on an object replaces the one that the object would inherit, so each role has all
privileges that are needed on its objects. The kinds that only read need the first role alone,
without `StorageProfile.View`.

vCenter adds `System.Anonymous`, `System.Read` and `System.View` to every role that is created. So
each of these roles can also read its objects, although only the first one lists these privileges.
"""
_COMMANDS_TEXT = """
Replace the names in capitals. Repeat `permissions.set` for each template, resource pool, datastore
and network that VmGroups use, or set it on a folder that contains them. govc reads its own
variables, not those of the manager.
"""
_TAGS_TEXT = """
Permissions on the inventory do not apply to tags. To see the tags of hosts, give the account a
global permission with the role Read-only: in the vSphere Client, Administration, Access Control,
Global Permissions. Neither the vSphere API nor govc can set or read global permissions. Instead,
the doctor reads the tags of all hosts. If it sees none, it cannot know whether the permission is
missing, and reports that it was not checked. Without it, hosts have no tags in the status of
HostInfo.
"""

_OTHER_TEXT = """
A template that is encrypted also needs `Cryptographer.Clone`. From vSphere 8.0 U2 on, a storage
policy can have permissions of its own, which the account then needs too. Neither has been tested.
"""


def _rows(role: Role) -> Iterator[tuple[str, ...]]:
    for privilege in role.privileges:
        option = f" with {code(privilege.option)}" if privilege.option else ""
        yield code(privilege.name), f"{privilege.kinds}{option}", privilege.purpose


def _sections() -> Iterator[str]:
    for role in ROLES:
        yield f"### On {role.location}"
        yield f"Role {code(role.name)}, propagated to what is below."
        yield table(("privilege", "needed by", "to"), _rows(role))


def _commands() -> str:
    lines = [
        command
        for role in ROLES
        for command in (
            format_role_command("create", role),
            format_permission_command(role, _USER, [role.placeholder]),
        )
    ]
    block = "\n".join(_wrap(line) for line in lines)
    return f"<!-- not run: it needs a vCenter and govc -->\n```sh\n{block}\n```"


def _wrap(command: str) -> str:
    """The command with at most 100 columns, continued after a backslash."""
    lines = [""]
    for word in command.split(" "):
        if len(lines[-1]) + len(word) > 96:
            lines[-1] += " \\"
            lines.append("  ")
        separator = "" if not lines[-1].strip() else " "
        lines[-1] += separator + word
    return "\n".join(lines)


def render() -> str:
    return page(
        "Privileges of the vCenter account",
        _INTRODUCTION,
        "## The table",
        *_sections(),
        "## Commands",
        _COMMANDS_TEXT,
        _commands(),
        "## Tags",
        _TAGS_TEXT,
        "## Not in the table",
        _OTHER_TEXT,
    )
