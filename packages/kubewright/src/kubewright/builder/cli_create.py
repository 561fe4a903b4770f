"""The commands `create api` and `create webhook`, their options and their help."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import ConfigError
from .changeset import ChangeSet
from .names import build_resource_names, check_kind, check_version, qualify_group
from .project import Project, ResourceEntry
from .prompt import (
    DRY_RUN_OPTION,
    FORCE_OPTION,
    PROJECT_OPTION,
    get_or_prompt,
    open_project,
    print_next_steps,
    show_or_write,
)
from .sandbox import add_generated_config
from .scaffold.api import ApiParameters, check_resource_is_new, scaffold_api
from .scaffold.conversion import add_versions, check_hub_version, parse_spokes
from .scaffold.fields import parse_fields
from .scaffold.format import format_change
from .scaffold.version import find_hub, scaffold_version, version_module
from .scaffold.webhook import WebhookParameters, find_kind, scaffold_webhook

CommandOptions = dict[str, Any]


@click.group()
def create() -> None:
    """Add something to a project."""


@create.command()
@click.option(
    "--group",
    help="API group: `topology` gets the project's domain behind it; one with a dot is whole.",
)
@click.option("--version", "version_", help="Version, such as v1 or v1alpha1.")
@click.option("--kind", "kind_", help="Kind, such as HostInfo.")
@click.option(
    "--plural", default="", help="Plural; by kubebuilder's rule by default: HostInfo, hostinfoes."
)
@click.option(
    "--short-name",
    "short",
    multiple=True,
    help="Short name for kubectl; may be given several times.",
)
@click.option(
    "--namespaced/--cluster-wide",
    default=True,
    help="Whether objects live in namespaces (they do by default).",
)
@click.option(
    "--spec",
    "spec",
    multiple=True,
    metavar="NAME:TYPE",
    help="A field of the spec: hostname:str, cpu:int! (! for required).",
)
@click.option(
    "--status",
    "status",
    multiple=True,
    metavar="NAME:TYPE",
    help="A field of the status: freeCPU:int.",
)
@click.option(
    "--resource", type=bool, default=True, help="Whether to make the types; true is all there is."
)
@click.option(
    "--controller",
    type=bool,
    default=True,
    help="Whether to make the controller (it is made by default).",
)
@click.option(
    "--storage", is_flag=True, help="Of another version of a kind: store objects in this one."
)
@PROJECT_OPTION
@DRY_RUN_OPTION
@FORCE_OPTION
def api(root: Path, dry_run: bool, force: bool, **told: Any) -> None:
    """Add a kind: one file with spec, status, a pure function and the controller, its test, its sample, its line in the list.

    \b
    Examples:
      kubewright create api --group topology --version v1 --kind HostInfo --short-name hi
      kubewright create api --group vm --version v1alpha1 --kind VmGroup --spec replicas:int! --spec template:str! --status phase:str
      kubewright create api --group demo --version v1 --kind Greeting --dry-run
      kubewright create api --group demo --version v2 --kind Greeting        (another version, with its conversion)
    """
    with open_project(root, writes=not dry_run) as project:
        wish = _read_api_parameters(project, told)
        new = wish.resource
        hub = find_hub(project, new)
        check_resource_is_new(project, new)
        change = (
            scaffold_api(project, wish) if hub is None else scaffold_version(project, wish, hub)
        )
        file = (
            f"src/{project.package}/kinds/{new.module if hub is None else version_module(new)}.py"
        )
        _finish_creation(
            change,
            f"{new.kind} ({new.plural}.{new.group}) is ready.",
            [file],
            dry_run=dry_run,
            force=force,
        )


@create.command()
@click.option("--group", help="API group of the kind; needed only where it is not plain.")
@click.option("--kind", "kind_", help="A kind of this project.")
@click.option(
    "--version", "version_", help="The version that the kind's controller knows; need not be said."
)
@click.option("--defaulting", is_flag=True, help="Fill in what the sender left out.")
@click.option(
    "--validation", "--programmatic-validation", is_flag=True, help="Refuse what may not be stored."
)
@click.option(
    "--conversion",
    is_flag=True,
    help="Add another version, with the way to the one that the controller knows and back.",
)
@click.option(
    "--spoke",
    "spokes",
    multiple=True,
    metavar="VERSION",
    help="With --conversion: the other version; v2,v3 for several.",
)
@PROJECT_OPTION
@DRY_RUN_OPTION
@FORCE_OPTION
def webhook(root: Path, dry_run: bool, force: bool, **told: Any) -> None:
    """Add a webhook to a kind: one file, its test, its line in the list; certificates and configurations follow by themselves.

    A conversion is what `create api` makes for another version of a kind: its types, both ways, a test and a sample.

    \b
    Examples:
      kubewright create webhook --kind Greeting --defaulting
      kubewright create webhook --kind Greeting --defaulting --validation --dry-run
      kubewright create webhook --kind Greeting --conversion --spoke v2
    """
    with open_project(root, writes=not dry_run) as project:
        change = _build_webhook_change(project, told)
        files = [
            path for path in change.files if path.startswith("src/") and path not in change.edits
        ]
        _finish_creation(change, "It is ready.", files, dry_run=dry_run, force=force)


def _finish_creation(
    change: ChangeSet, words: str, files: Sequence[str], *, dry_run: bool, force: bool
) -> None:
    """Show the change with all that follows from it, or write it and say what is next."""
    whole, format_too = format_change(add_generated_config(change))
    show_or_write(whole, dry_run=dry_run, force=force)
    if not dry_run:
        print_next_steps(words, files, needs_format=format_too)


def _build_webhook_change(project: Project, told: CommandOptions) -> ChangeSet:
    """What `create webhook` is asked for: a webhook, other versions, or both."""
    _check_webhook_options(told)
    kind = get_or_prompt("--kind", told["kind_"], "Kind", check_kind)
    group = qualify_group(told["group"], project.config.domain) if told["group"] else ""
    asking = WebhookParameters(group, kind, told["defaulting"], told["validation"])
    listed = find_kind(project, asking)
    spokes = _choose_spokes(project, listed, told)
    first = (
        scaffold_webhook(project, asking)
        if asking.defaulting or asking.validation
        else ChangeSet(project.root, {})
    )
    return add_versions(project, listed, spokes, first)


def _check_webhook_options(told: CommandOptions) -> None:
    """Raise where it is not said what the webhook does."""
    if not (told["defaulting"] or told["validation"] or told["conversion"]):
        raise ConfigError(
            "say what the webhook does: --defaulting, --validation, --conversion, or several of them"
        )
    if told["spokes"] and not told["conversion"]:
        raise ConfigError("--spoke names the other version of a conversion: say --conversion too")


def _choose_spokes(
    project: Project, listed: ResourceEntry, told: CommandOptions
) -> tuple[str, ...]:
    """The other versions, asked for where none is named; none without --conversion."""
    version = told["version_"]
    if not told["conversion"]:
        check_hub_version(listed, version)
        return ()
    said = parse_spokes(project, listed, version, told["spokes"])
    return said or (
        get_or_prompt("--spoke", None, f"Other version, beside {listed.version}", check_version),
    )


def _read_api_parameters(project: Project, told: CommandOptions) -> ApiParameters:
    """What `create api` is asked for, with what is missing asked for at the terminal."""
    if not told["resource"]:
        raise ConfigError(
            "--resource=false: a controller here owns a kind, and follows others by `wake_on`; leave the option out"
        )
    group = get_or_prompt("--group", told["group"], "Group, such as topology", lambda text: text)
    version = get_or_prompt(
        "--version", told["version_"], "Version", check_version, suggestion="v1"
    )
    kind = get_or_prompt("--kind", told["kind_"], "Kind, such as HostInfo", check_kind)
    plural = told["plural"] or _find_existing_plural(
        project, qualify_group(group, project.config.domain), kind
    )
    new = build_resource_names(
        group,
        project.config.domain,
        version,
        kind,
        plural=plural,
        short_names=told["short"],
        namespaced=told["namespaced"],
    )
    return ApiParameters(
        new,
        parse_fields(told["spec"]),
        parse_fields(told["status"], status=True),
        told["controller"],
        told["storage"],
    )


def _find_existing_plural(project: Project, group: str, kind: str) -> str:
    """The plural of a kind of which a version is there already, else ""."""
    return next(
        (
            each.plural
            for each in project.config.resources
            if (each.group, each.kind) == (group, kind)
        ),
        "",
    )
