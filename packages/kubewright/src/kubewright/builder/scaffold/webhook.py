"""`kubewright create webhook`: defaults and checks beside a kind."""

from __future__ import annotations

from dataclasses import dataclass

import tomlkit

from ...errors import ConfigError
from ..changeset import ChangeSet, read_text
from ..names import ResourceNames
from ..project import Project, ResourceEntry
from .api import read_build_module
from .python_edit import add_import, add_statement
from .template import render_folder
from .version import source_path

_DEFAULT_METHOD = '''
    async def default(self, {argument}: {kind}, request: Admission) -> None:
        """Fill in what the sender left out.

        A spec is frozen: {argument}.spec = msgspec.structs.replace({argument}.spec, ...)
        """
'''
_VALIDATE_METHOD = '''
    async def validate(self, {argument}: {kind}, old: {kind} | None, request: Admission) -> None:
        """Raise Rejected("why, and what to do", field="spec.x") for what may not be stored; `old` is None on create."""
        if old is not None and old.metadata.name != {argument}.metadata.name:
            raise Rejected("an object cannot be renamed", field="metadata.name")
'''
_DEFAULT_TEST = """
async def test_defaults_do_not_touch_what_is_set() -> None:
    {argument} = {kind}(spec=SPEC)
    await {kind}Webhook().default({argument}, Admission())
    assert {argument}.spec == SPEC
"""
_VALIDATE_TEST = """
async def test_what_is_right_is_let_through_and_what_is_wrong_is_refused() -> None:
    webhook, {argument} = {kind}Webhook(), {kind}(metadata=ObjectMeta(name="a"), spec=SPEC)
    await webhook.validate({argument}, None, Admission())
    other = {kind}(metadata=ObjectMeta(name="b"), spec=SPEC)
    with pytest.raises(Rejected):
        await webhook.validate({argument}, other, Admission(operation="UPDATE"))
"""


@dataclass(frozen=True)
class WebhookParameters:
    """What `create webhook` is told."""

    group: str
    kind: str
    defaulting: bool
    validation: bool


def scaffold_webhook(project: Project, asking: WebhookParameters) -> ChangeSet:
    """The webhook's file and test, its line in the list, and its mark in pyproject.toml."""
    found = find_kind(project, asking)
    _check_has_no_webhook(found)
    files = render_folder("webhook", build_template_values(project, asking, found))
    path, text = read_build_module(project)
    text = add_import(text, f".kinds.{asking.kind.lower()}_webhook", f"{asking.kind}Webhook", path)
    text = add_statement(
        text, project.config.build.partition(":")[2], f"{{0}}.add({asking.kind}Webhook())", path
    )
    edits = {path: text, "pyproject.toml": _set_webhooks_in_pyproject(project, found, asking)}
    return ChangeSet(project.root, files | edits, frozenset(edits))


def find_kind(project: Project, asking: WebhookParameters) -> ResourceEntry:
    """The kind, in the version that its controller knows: a webhook hears of every version in that one."""
    found = next(
        (
            each
            for each in project.config.resources
            if each.kind == asking.kind and not each.conversion
        ),
        None,
    )
    if found is None or (asking.group and found.group != asking.group):
        known = ", ".join(sorted({each.kind for each in project.config.resources})) or "none yet"
        raise ConfigError(
            f'there is no kind "{asking.kind}" here; there are: {known}. Make it first with `kubewright create api`'
        )
    return found


def _check_has_no_webhook(found: ResourceEntry) -> None:
    """Raise for a kind that has a webhook."""
    if found.webhooks:
        raise ConfigError(
            f"{found.kind} has a webhook already, for {' and '.join(found.webhooks)}; one kind has one. "
            f"Write the other method into {source_path(found).removesuffix('.py')}_webhook.py"
        )


def build_template_values(
    project: Project, asking: WebhookParameters, found: ResourceEntry
) -> dict[str, str]:
    """What the places in the templates are filled with."""
    words = {"kind": asking.kind, "argument": asking.kind.lower()}
    methods = [_DEFAULT_METHOD] * asking.defaulting + [_VALIDATE_METHOD] * asking.validation
    tests = [_DEFAULT_TEST] * asking.defaulting + [_VALIDATE_TEST] * asking.validation
    ours = ["Admission"] + ["ObjectMeta", "Rejected"] * asking.validation
    return {
        "package": project.package,
        "kind": asking.kind,
        "module": asking.kind.lower(),
        "refused": "Rejected, " if asking.validation else "",
        "methods": "".join(methods).format(**words).rstrip("\n"),
        "sample": ResourceNames(found.group, found.version, found.kind, found.plural).sample_file,
        "pytest": "import pytest\n" if asking.validation else "",
        "imports": ", ".join(ours),
        "tests": "\n".join(tests).format(**words).rstrip("\n"),
    }


def _set_webhooks_in_pyproject(
    project: Project, found: ResourceEntry, asking: WebhookParameters
) -> str:
    """pyproject.toml, where the kind says which webhooks it has."""
    document = tomlkit.parse(read_text(project.root / "pyproject.toml"))
    names = ["defaulting"] * asking.defaulting + ["validation"] * asking.validation
    for entry in document["tool"]["kubewright"]["resources"]:
        if (entry["kind"], entry["version"]) == (found.kind, found.version):
            entry["webhooks"] = names
    return tomlkit.dumps(document)
