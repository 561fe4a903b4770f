"""Scaffolds `create webhook`: defaulting and validation of a kind."""

from __future__ import annotations

from dataclasses import dataclass

import tomlkit

from ...errors import ConfigError
from ..changeset import ChangeSet
from ..names import ResourceNames
from ..project import Project, ResourceEntry
from .api import add_to_manager
from .template import render_folder

_DEFAULT_METHOD = '''
    async def default(self, {argument}: {kind}, request: Admission) -> None:
        """Set fields that the request leaves out.

        A spec is frozen: assign a copy made with `msgspec.structs.replace`.
        """
'''
_VALIDATE_METHOD = '''
    async def validate(self, {argument}: {kind}, old: {kind} | None, request: Admission) -> None:
        """Raise Rejected("reason and what to do", field="spec.x") for an invalid object.

        On create there is no `old` object.
        """
        if old is not None and old.metadata.name != {argument}.metadata.name:
            raise Rejected("an object cannot be renamed", field="metadata.name")
'''
_DEFAULT_TEST = """
async def test_defaulting_keeps_fields_that_are_set() -> None:
    {argument} = {kind}(spec=SAMPLE.spec)
    await {kind}Webhook().default({argument}, Admission())
    assert {argument}.spec == SAMPLE.spec
"""
_VALIDATE_TEST = """
async def test_valid_object_is_admitted_and_renamed_object_is_rejected() -> None:
    webhook = {kind}Webhook()
    {argument} = {kind}(metadata=ObjectMeta(name="a"), spec=SAMPLE.spec)
    await webhook.validate({argument}, None, Admission())
    other = {kind}(metadata=ObjectMeta(name="b"), spec=SAMPLE.spec)
    with pytest.raises(Rejected):
        await webhook.validate({argument}, other, Admission(operation="UPDATE"))
"""


@dataclass(frozen=True)
class WebhookParameters:
    group: str
    kind: str
    defaulting: bool
    validation: bool


def scaffold_webhook(project: Project, parameters: WebhookParameters) -> ChangeSet:
    """The webhook's class and test, and the edits of main.py and pyproject.toml."""
    entry, kind = find_kind(project, parameters), parameters.kind
    if entry.webhooks:
        raise ConfigError(
            f"{kind} already has a webhook, for {' and '.join(entry.webhooks)}. "
            f"Add the other method to {entry.source_path.removesuffix('.py')}_webhook.py"
        )
    files = render_folder("webhook", _build_template_values(project, parameters, entry))
    edited_files = add_to_manager(project, f"{kind.lower()}_webhook", f"{kind}Webhook")
    edited_files["pyproject.toml"] = _set_webhooks_in_pyproject(project, entry, parameters)
    return ChangeSet(project.root, files | edited_files, frozenset(edited_files))


def find_kind(project: Project, parameters: WebhookParameters) -> ResourceEntry:
    """The kind in its controller's version: objects of all versions reach a webhook in that one."""
    entries = project.config.resources
    hubs = (item for item in entries if item.kind == parameters.kind and not item.conversion)
    entry = next(hubs, None)
    if entry is None or (parameters.group and entry.group != parameters.group):
        kinds = ", ".join(sorted({item.kind for item in entries})) or "none"
        raise ConfigError(
            f'this project has no kind "{parameters.kind}"; its kinds: {kinds}. '
            "Create it first with `kubewright create api`"
        )
    if entry.external:
        raise ConfigError(
            f"{entry.kind} is declared by another project: write a class that extends "
            f"Webhook[{entry.kind}], and add it in {project.config.build}"
        )
    return entry


def _build_template_values(
    project: Project, parameters: WebhookParameters, entry: ResourceEntry
) -> dict[str, str]:
    kind, module = parameters.kind, parameters.kind.lower()
    methods = [_DEFAULT_METHOD] * parameters.defaulting + [_VALIDATE_METHOD] * parameters.validation
    tests = [_DEFAULT_TEST] * parameters.defaulting + [_VALIDATE_TEST] * parameters.validation
    imports = ["Admission"] + ["ObjectMeta", "Rejected"] * parameters.validation
    return {
        "package": project.package,
        "kind": kind,
        "module": module,
        "rejected": "Rejected, " if parameters.validation else "",
        "methods": "".join(methods).format(kind=kind, argument=module).rstrip("\n"),
        "sample": ResourceNames(entry.group, entry.version, kind, entry.plural).sample_file,
        "pytest": "import pytest\n" if parameters.validation else "",
        "imports": ", ".join(imports),
        "tests": "\n".join(tests).format(kind=kind, argument=module).rstrip("\n"),
    }


def _set_webhooks_in_pyproject(
    project: Project, entry: ResourceEntry, parameters: WebhookParameters
) -> str:
    document = tomlkit.parse(project.read_text("pyproject.toml"))
    names = ["defaulting"] * parameters.defaulting + ["validation"] * parameters.validation
    for table in document["tool"]["kubewright"]["resources"]:
        if (table["kind"], table["version"]) == (entry.kind, entry.version):
            table["webhooks"] = names
    return tomlkit.dumps(document)
