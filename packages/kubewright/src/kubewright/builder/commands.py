"""The commands, their options and their help."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from .. import __name__ as program
from ..crd import crds
from ..errors import ConfigError
from .api import Wish, new_api, refuse_existing
from .baseline import BASES, committed, crds_in, on_disk
from .breaking import compare
from .change import Change, text_of
from .chart import chart, left_in_chart
from .exchange import recovered
from .field import fields_of
from .hook import Asking, new_webhook
from .installer import installer
from .manifests import manifests
from .names import checked_domain, checked_group, checked_kind, checked_project, checked_version, resource
from .project import Project
from .reference import page
from .scaffold import LICENSES, Beginning, new_project
from .stage import with_config
from .version import hub_of, new_version

Options = dict[str, Any]
MANY = 20


def whole(context: click.Context, parameter: click.Parameter, folder: Path) -> Path:
    """The folder of a project, where nothing is half written any more."""
    root = folder.resolve()
    for words in recovered(root):
        click.echo(f"kubewright: {words}", err=True)
    return root


PROJECT = click.option(
    "--project",
    "root",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    callback=whole,
    help="The folder of the project.",
)
DRY_RUN = click.option("--dry-run", is_flag=True, help="Write nothing; show what would change as a diff.")
FORCE = click.option("--force", is_flag=True, help="Overwrite files that are there.")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name=program)
def kubewright() -> None:
    r"""Build Kubernetes operators in Python.

    \b
    From an empty folder to a tested operator:
      kubewright init --domain example.com
      kubewright create api --group demo --version v1 --kind Greeting
      make test
      make install run

    \b
    Completion in your shell, for this session:
      eval "$(_KUBEWRIGHT_COMPLETE=bash_source kubewright)"     (zsh_source, fish_source)
    """


@kubewright.command()
@click.argument("root", metavar="[FOLDER]", type=click.Path(path_type=Path, file_okay=False), default=Path(), callback=whole)
@click.option("--domain", help="The domain of your API groups, such as example.com.")
@click.option("--project-name", help="Begins the names of cluster-wide objects; the folder's name by default.")
@click.option("--owner", default="", help="Whose it is; stands in LICENSE and pyproject.toml.")
@click.option("--license", "license_", type=click.Choice(LICENSES, case_sensitive=False), default="Apache-2.0", show_default=True)
@click.option("--year", type=int, hidden=True)
@DRY_RUN
def init(root: Path, domain: str | None, project_name: str | None, owner: str, license_: str, year: int | None, dry_run: bool) -> None:
    r"""Make a new project in an empty folder.

    \b
    Examples:
      kubewright init --domain example.com
      kubewright init hostinfo --domain corinternal.com --owner "Ann Example" --license MIT
      kubewright init --domain example.com --dry-run
    """
    domain = asked("--domain", domain, "Domain of your API groups, such as example.com", checked_domain)
    told = Beginning(checked_project(project_name or root.name.lower().replace("_", "-")), domain, owner, license_)
    if year is not None:
        told = Beginning(told.name, told.domain, told.owner, told.license, year)
    finish(with_config(new_project(root, told)), dry_run=dry_run, force=False)
    if not dry_run:
        click.echo(f"\n{told.name} is ready. Next, add a kind:\n  kubewright create api --group demo --version v1 --kind Greeting")


@kubewright.group()
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
    r"""Add a kind: one file with spec, status, a pure function and the controller, its test, its sample, its line in the list.

    \b
    Examples:
      kubewright create api --group topology --version v1 --kind HostInfo --short-name hi
      kubewright create api --group vm --version v1alpha1 --kind VmGroup --spec replicas:int! --spec template:str! --status phase:str
      kubewright create api --group demo --version v1 --kind Greeting --dry-run
      kubewright create api --group demo --version v2 --kind Greeting        (another version, with its conversion)
    """
    project = Project.read(root)
    wish = wish_of(project, told)
    hub = hub_of(project, wish.resource)
    refuse_existing(project, wish.resource)
    change = new_api(project, wish) if hub is None else new_version(project, wish, hub)
    finish(with_config(change), dry_run=dry_run, force=force)
    if not dry_run:
        new = wish.resource
        click.echo(f"\n{new.kind} ({new.plural}.{new.group}) is ready. Next:")
        module = new.module if hub is None else f"{new.module}_{new.version}"
        click.echo(f"  edit src/{project.package}/kinds/{module}.py\n  make test")


@create.command()
@click.option("--group", help="API group of the kind; needed only where it is not plain.")
@click.option("--kind", "kind_", help="A kind of this project.")
@click.option("--version", "version_", hidden=True)
@click.option("--defaulting", is_flag=True, help="Fill in what the sender left out.")
@click.option("--validation", "--programmatic-validation", is_flag=True, help="Refuse what may not be stored.")
@click.option("--conversion", is_flag=True, help="Comes with another version: see `create api`.")
@PROJECT
@DRY_RUN
@FORCE
def webhook(root: Path, dry_run: bool, force: bool, **told: Any) -> None:
    r"""Add a webhook to a kind: one file, its test, its line in the list; certificates and configurations follow by themselves.

    \b
    Examples:
      kubewright create webhook --kind Greeting --defaulting
      kubewright create webhook --kind Greeting --defaulting --validation --dry-run
    """
    project = Project.read(root)
    if told["conversion"]:
        raise ConfigError("a conversion is made with the other version: kubewright create api --kind ... --version v2")
    kind = asked("--kind", told["kind_"], "Kind", checked_kind)
    group = checked_group(told["group"], project.table.domain) if told["group"] else ""
    asking = Asking(group, kind, told["defaulting"], told["validation"])
    finish(with_config(new_webhook(project, asking)), dry_run=dry_run, force=force)


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


@kubewright.command(name="manifests")
@click.option("--check", is_flag=True, help="Write nothing; fail when a file is stale, or a CRD breaks what people have.")
@click.option("--against", default="HEAD", show_default=True, metavar="COMMIT", help="The commit whose CRDs people have.")
@click.option("--allow-breaking", is_flag=True, help="With --check: name what breaks, and do not fail for it.")
@PROJECT
def manifests_(root: Path, check: bool, against: str, allow_breaking: bool) -> int:
    r"""Generate config/: CRDs, least-rights roles, the Deployment and its variants.

    \b
    Examples:
      kubewright manifests
      kubewright manifests --check
      kubewright manifests --check --against origin/main
    """
    change = manifests(Project.read(root))
    broken = breaks(change, against, on_disk_too=check)
    if not check:
        for path in change.write():
            click.echo(f"removed {path}" if path in change.removed else f"wrote {path}")
        return 0
    if difference := change.diff():
        click.echo(f"{difference}\nThese generated files are stale; run `make manifests` and commit the result.", err=True)
        return 1
    click.echo(f"{len(change.files)} generated files are current")
    return 1 if broken and not allow_breaking else 0


def breaks(change: Change, against: str, *, on_disk_too: bool) -> bool:
    """Say what the generated CRDs break, compared with those of a commit, or on disk where there is none; whether that is anything."""
    new = crds_in({path: text for path, text in change.files.items() if path.startswith(BASES)})
    old, where = committed(change.root, against), against
    if old is None:
        old, where = (on_disk(change.root) if on_disk_too else []), "the files on disk"
    broken = [each for each in compare(old, new) if each.breaking]
    for each in broken:
        click.echo(f"breaking: {each}", err=True)
    if broken:
        click.echo(
            f"Compared with the CRDs of {where}, people's manifests, objects or scripts may fail. Keep the old form and add a new field "
            "or a new version; if it is meant, `--check --allow-breaking`.",
            err=True,
        )
    return bool(broken)


@kubewright.command(name="build-installer")
@click.option("--image", default="", help="The image to run; the project's own by default.")
@click.option("--overlay", default="config/default", show_default=True, help="The kustomization to render.")
@click.option("--kubectl", default="", help="The kubectl whose kustomize to use; .testenv/bin, then PATH by default.")
@click.option("--output", default="dist/install.yaml", show_default=True, help="Where to write it; - prints it.")
@PROJECT
def build_installer(root: Path, image: str, overlay: str, kubectl: str, output: str) -> None:
    r"""Write all that is deployed into one file.

    \b
    Examples:
      kubewright build-installer --image example.com/greeter:v1
      kubewright build-installer --image example.com/greeter:v1 --output - | kubectl apply -f -
      kubewright build-installer --overlay config/overlays/production
    """
    project = Project.read(root)
    deliver(project, installer(project, image, overlay, kubectl), output)


@kubewright.command()
@click.option("--output", default="docs/api.md", show_default=True, help="Where to write it; - prints it.")
@click.option("--check", is_flag=True, help="Write nothing; fail when the page is stale.")
@PROJECT
def docs(root: Path, output: str, check: bool) -> int:
    r"""Write a reference of the API, in Markdown, from the types.

    \b
    Examples:
      kubewright docs
      kubewright docs --output docs/reference/api.md --check
    """
    project = Project.read(root)
    text = page(project.name, crds(project.declared().kinds))
    if check and text_of(project.root / output) != text:
        click.echo(f"{output} is stale; run `make docs` and commit the result", err=True)
        return 1
    if not check:
        deliver(project, text, output)
    return 0


@kubewright.command()
@click.option("--output", default="dist/chart", show_default=True, help="The folder of the chart.")
@PROJECT
def helm(root: Path, output: str) -> None:
    r"""Write a Helm chart: the same objects as config/, with values where people differ.

    \b
    Examples:
      kubewright helm
      kubewright helm --output charts/greeter
      helm install greeter dist/chart --namespace greeter-system --create-namespace --set image=example.com/greeter:v1
    """
    project = Project.read(root)
    place, folder = anchored(project.root, output)
    files = {f"{folder}/{name}": text for name, text in chart(project, project.declared()).items()}
    written = Change(place, files, frozenset(files), left_in_chart(place, folder, files)).write()
    click.echo(f"wrote {output} ({len(written)} files)" if written else f"{output} is current")


def deliver(project: Project, text: str, output: str) -> None:
    """Print a text, or write it to a file."""
    if output == "-":
        click.echo(text, nl=False)
        return
    root, path = anchored(project.root, output)
    written = Change(root, {path: text}).write()
    click.echo(f"wrote {output}" if written else f"{output} is current")


def anchored(root: Path, output: str) -> tuple[Path, str]:
    """Where to write, and under which path from there: in the project, or beside what is outside of it."""
    place = Path(os.path.normpath(root / output))
    return (root, place.relative_to(root).as_posix()) if place.is_relative_to(root) else (place.parent, place.name)


def asked(option: str, value: str | None, words: str, check: Any, suggestion: str | None = None) -> str:
    """The value, checked; where it is missing a person at the terminal is asked, again until it is right."""
    if value is not None:
        return str(check(value))
    if not sys.stdin.isatty():
        raise click.UsageError(f"{option} is missing, and there is no terminal to ask at")

    def checked(text: str) -> str:
        try:
            return str(check(text))
        except ConfigError as error:
            raise click.UsageError(str(error)) from None

    return str(click.prompt(words, value_proc=checked, default=suggestion))


def finish(change: Change, *, dry_run: bool, force: bool) -> None:
    """Show the change, or write it and say what was written."""
    if dry_run:
        click.echo(change.diff() or "nothing would change")
        return
    if not force:
        change.refuse_conflicts()
    click.echo("\n".join(told_in_short(change.write(), change.removed)))


def told_in_short(paths: Sequence[str], removed: Sequence[str]) -> list[str]:
    """Which files were written or removed; of many, those of config/ by their number alone."""
    generated = [path for path in paths if path.startswith("config/")] if len(paths) > MANY else []
    rest = [f"removed {path}" if path in removed else f"wrote {path}" for path in paths if path not in generated]
    return [*rest, f"wrote config/ ({len(generated)} files)"] if generated else rest
