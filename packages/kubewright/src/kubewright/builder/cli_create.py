"""The commands `create api` and `create webhook`, their options and their help."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import ConfigError
from .changeset import Change
from .names import checked_group, checked_kind, checked_version, resource
from .project import Listed, Project
from .prompt import DRY_RUN, FORCE, PROJECT, asked, finish, opened, said_next
from .sandbox import with_config
from .scaffold.api import Wish, new_api, refuse_existing
from .scaffold.conversion import refuse_other_version, spokes_said, with_versions
from .scaffold.fields import fields_of
from .scaffold.format import laid_out
from .scaffold.version import hub_of, module_of, new_version
from .scaffold.webhook import Asking, kind_of, new_webhook

Options = dict[str, Any]


@click.group()
def create() -> None:
    """Add something to a project."""


@create.command()
@click.option("--group", help="API group: `topology` gets the project's domain behind it; one with a dot is whole.")
@click.option("--version", "version_", help="Version, such as v1 or v1alpha1.")
@click.option("--kind", "kind_", help="Kind, such as HostInfo.")
@click.option("--plural", default="", help="Plural; by kubebuilder's rule by default: HostInfo, hostinfoes.")
@click.option("--short-name", "short", multiple=True, help="Short name for kubectl; may be given several times.")
@click.option("--namespaced/--cluster-wide", default=True, help="Whether objects live in namespaces (they do by default).")
@click.option("--spec", "spec", multiple=True, metavar="NAME:TYPE", help="A field of the spec: hostname:str, cpu:int! (! for required).")
@click.option("--status", "status", multiple=True, metavar="NAME:TYPE", help="A field of the status: freeCPU:int.")
@click.option("--resource", type=bool, default=True, help="Whether to make the types; true is all there is.")
@click.option("--controller", type=bool, default=True, help="Whether to make the controller (it is made by default).")
@click.option("--storage", is_flag=True, help="Of another version of a kind: store objects in this one.")
@PROJECT
@DRY_RUN
@FORCE
def api(root: Path, dry_run: bool, force: bool, **told: Any) -> None:
    """Add a kind: one file with spec, status, a pure function and the controller, its test, its sample, its line in the list.

    \b
    Examples:
      kubewright create api --group topology --version v1 --kind HostInfo --short-name hi
      kubewright create api --group vm --version v1alpha1 --kind VmGroup --spec replicas:int! --spec template:str! --status phase:str
      kubewright create api --group demo --version v1 --kind Greeting --dry-run
      kubewright create api --group demo --version v2 --kind Greeting        (another version, with its conversion)
    """
    with opened(root, writes=not dry_run) as project:
        wish = wish_of(project, told)
        new = wish.resource
        hub = hub_of(project, new)
        refuse_existing(project, new)
        change = new_api(project, wish) if hub is None else new_version(project, wish, hub)
        file = f"src/{project.package}/kinds/{new.module if hub is None else module_of(new)}.py"
        conclude(change, f"{new.kind} ({new.plural}.{new.group}) is ready.", [file], dry_run=dry_run, force=force)


@create.command()
@click.option("--group", help="API group of the kind; needed only where it is not plain.")
@click.option("--kind", "kind_", help="A kind of this project.")
@click.option("--version", "version_", help="The version that the kind's controller knows; need not be said.")
@click.option("--defaulting", is_flag=True, help="Fill in what the sender left out.")
@click.option("--validation", "--programmatic-validation", is_flag=True, help="Refuse what may not be stored.")
@click.option("--conversion", is_flag=True, help="Add another version, with the way to the one that the controller knows and back.")
@click.option("--spoke", "spokes", multiple=True, metavar="VERSION", help="With --conversion: the other version; v2,v3 for several.")
@PROJECT
@DRY_RUN
@FORCE
def webhook(root: Path, dry_run: bool, force: bool, **told: Any) -> None:
    """Add a webhook to a kind: one file, its test, its line in the list; certificates and configurations follow by themselves.

    A conversion is what `create api` makes for another version of a kind: its types, both ways, a test and a sample.

    \b
    Examples:
      kubewright create webhook --kind Greeting --defaulting
      kubewright create webhook --kind Greeting --defaulting --validation --dry-run
      kubewright create webhook --kind Greeting --conversion --spoke v2
    """
    with opened(root, writes=not dry_run) as project:
        change = asked_webhook(project, told)
        files = [path for path in change.files if path.startswith("src/") and path not in change.edits]
        conclude(change, "It is ready.", files, dry_run=dry_run, force=force)


def conclude(change: Change, words: str, files: Sequence[str], *, dry_run: bool, force: bool) -> None:
    """Show the change with all that follows from it, or write it and say what is next."""
    whole, format_too = laid_out(with_config(change))
    finish(whole, dry_run=dry_run, force=force)
    if not dry_run:
        said_next(words, files, format_too=format_too)


def asked_webhook(project: Project, told: Options) -> Change:
    """What `create webhook` is asked for: a webhook, other versions, or both."""
    refuse_half_said(told)
    kind = asked("--kind", told["kind_"], "Kind", checked_kind)
    group = checked_group(told["group"], project.table.domain) if told["group"] else ""
    asking = Asking(group, kind, told["defaulting"], told["validation"])
    listed = kind_of(project, asking)
    spokes = spokes_for(project, listed, told)
    first = new_webhook(project, asking) if asking.defaulting or asking.validation else Change(project.root, {})
    return with_versions(project, listed, spokes, first)


def refuse_half_said(told: Options) -> None:
    """Raise where it is not said what the webhook does."""
    if not (told["defaulting"] or told["validation"] or told["conversion"]):
        raise ConfigError("say what the webhook does: --defaulting, --validation, --conversion, or several of them")
    if told["spokes"] and not told["conversion"]:
        raise ConfigError("--spoke names the other version of a conversion: say --conversion too")


def spokes_for(project: Project, listed: Listed, told: Options) -> tuple[str, ...]:
    """The other versions, asked for where none is named; none without --conversion."""
    version = told["version_"]
    if not told["conversion"]:
        refuse_other_version(listed, version)
        return ()
    said = spokes_said(project, listed, version, told["spokes"])
    return said or (asked("--spoke", None, f"Other version, beside {listed.version}", checked_version),)


def wish_of(project: Project, told: Options) -> Wish:
    """What `create api` is asked for, with what is missing asked for at the terminal."""
    if not told["resource"]:
        raise ConfigError("--resource=false: a controller here owns a kind, and follows others by `wake_on`; leave the option out")
    group = asked("--group", told["group"], "Group, such as topology", lambda text: text)
    version = asked("--version", told["version_"], "Version", checked_version, suggestion="v1")
    kind = asked("--kind", told["kind_"], "Kind, such as HostInfo", checked_kind)
    plural = told["plural"] or plural_there(project, checked_group(group, project.table.domain), kind)
    new = resource(group, project.table.domain, version, kind, plural=plural, short=told["short"], namespaced=told["namespaced"])
    return Wish(new, fields_of(told["spec"]), fields_of(told["status"], status=True), told["controller"], told["storage"])


def plural_there(project: Project, group: str, kind: str) -> str:
    """The plural of a kind of which a version is there already, else ""."""
    return next((each.plural for each in project.table.resources if (each.group, each.kind) == (group, kind)), "")
