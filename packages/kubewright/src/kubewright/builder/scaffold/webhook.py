"""`kubewright create webhook`: defaults and checks beside a kind."""

from __future__ import annotations

from dataclasses import dataclass

import tomlkit

from ...errors import ConfigError
from ..changeset import Change, text_in
from ..names import Resource
from ..project import Listed, Project
from .api import list_of_controllers
from .python_edit import with_import, with_statement
from .template import tree
from .version import path_of

DEFAULT = '''
    async def default(self, {argument}: {kind}, request: Admission) -> None:
        """Fill in what the sender left out.

        A spec is frozen: {argument}.spec = msgspec.structs.replace({argument}.spec, ...)
        """
'''
VALIDATE = '''
    async def validate(self, {argument}: {kind}, old: {kind} | None, request: Admission) -> None:
        """Raise Refused("why, and what to do", field="spec.x") for what may not be stored; `old` is None on create."""
        if old is not None and old.metadata.name != {argument}.metadata.name:
            raise Refused("an object cannot be renamed", field="metadata.name")
'''
TEST_DEFAULT = """
async def test_defaults_do_not_touch_what_is_set() -> None:
    {argument} = {kind}(spec=SPEC)
    await {kind}Webhook().default({argument}, Admission())
    assert {argument}.spec == SPEC
"""
TEST_VALIDATE = """
async def test_what_is_right_is_let_through_and_what_is_wrong_is_refused() -> None:
    webhook, {argument} = {kind}Webhook(), {kind}(metadata=ObjectMeta(name="a"), spec=SPEC)
    await webhook.validate({argument}, None, Admission())
    other = {kind}(metadata=ObjectMeta(name="b"), spec=SPEC)
    with pytest.raises(Refused):
        await webhook.validate({argument}, other, Admission(operation="UPDATE"))
"""


@dataclass(frozen=True)
class Asking:
    """What `create webhook` is told."""

    group: str
    kind: str
    defaulting: bool
    validation: bool


def new_webhook(project: Project, asking: Asking) -> Change:
    """The webhook's file and test, its line in the list, and its mark in pyproject.toml."""
    found = kind_of(project, asking)
    refuse_second(found)
    files = tree("webhook", values_of(project, asking, found))
    path, text = list_of_controllers(project)
    text = with_import(text, f".kinds.{asking.kind.lower()}_webhook", f"{asking.kind}Webhook", path)
    text = with_statement(text, project.table.build.partition(":")[2], f"{{0}}.add({asking.kind}Webhook())", path)
    edits = {path: text, "pyproject.toml": with_mark(project, found, asking)}
    return Change(project.root, files | edits, frozenset(edits))


def kind_of(project: Project, asking: Asking) -> Listed:
    """The kind, in the version that its controller knows: a webhook hears of every version in that one."""
    found = next((each for each in project.table.resources if each.kind == asking.kind and not each.conversion), None)
    if found is None or (asking.group and found.group != asking.group):
        known = ", ".join(sorted({each.kind for each in project.table.resources})) or "none yet"
        raise ConfigError(f'there is no kind "{asking.kind}" here; there are: {known}. Make it first with `kubewright create api`')
    return found


def refuse_second(found: Listed) -> None:
    """Raise for a kind that has a webhook."""
    if found.webhooks:
        raise ConfigError(
            f"{found.kind} has a webhook already, for {' and '.join(found.webhooks)}; one kind has one. "
            f"Write the other method into {path_of(found).removesuffix('.py')}_webhook.py"
        )


def values_of(project: Project, asking: Asking, found: Listed) -> dict[str, str]:
    """What the places in the templates are filled with."""
    words = {"kind": asking.kind, "argument": asking.kind.lower()}
    methods = [DEFAULT] * asking.defaulting + [VALIDATE] * asking.validation
    tests = [TEST_DEFAULT] * asking.defaulting + [TEST_VALIDATE] * asking.validation
    ours = ["Admission"] + ["ObjectMeta", "Refused"] * asking.validation
    return {
        "package": project.package,
        "kind": asking.kind,
        "module": asking.kind.lower(),
        "refused": "Refused, " if asking.validation else "",
        "methods": "".join(methods).format(**words).rstrip("\n"),
        "sample": Resource(found.group, found.version, found.kind, found.plural).sample,
        "pytest": "import pytest\n" if asking.validation else "",
        "imports": ", ".join(ours),
        "tests": "\n".join(tests).format(**words).rstrip("\n"),
    }


def with_mark(project: Project, found: Listed, asking: Asking) -> str:
    """pyproject.toml, where the kind says which webhooks it has."""
    document = tomlkit.parse(text_in(project.root / "pyproject.toml"))
    names = ["defaulting"] * asking.defaulting + ["validation"] * asking.validation
    for entry in document["tool"]["kubewright"]["resources"]:
        if (entry["kind"], entry["version"]) == (found.kind, found.version):
            entry["webhooks"] = names
    return tomlkit.dumps(document)
