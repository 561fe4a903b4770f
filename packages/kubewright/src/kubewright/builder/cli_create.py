"""The commands `kubewright create api` and `kubewright create webhook`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import ConfigError
from .changeset import ChangeSet
from .complete import complete_change
from .names import (
    build_resource_names,
    check_class_name,
    check_description,
    check_kind,
    check_version,
    qualify_group,
)
from .project import Project, ResourceEntry
from .scaffold.api import ApiParameters, check_resource_is_new, scaffold_api
from .scaffold.children import find_incomplete_children, parse_owned_kinds
from .scaffold.external import scaffold_external
from .scaffold.external_kinds import find_external_kind
from .scaffold.fields import parse_fields
from .scaffold.version import (
    check_hub_version,
    find_hub,
    parse_spokes,
    scaffold_conversions,
    scaffold_version,
    version_module,
)
from .scaffold.webhook import WebhookParameters, find_kind, scaffold_webhook
from .terminal import DRY_RUN_OPTION, FORCE_OPTION, PROJECT_OPTION, get_or_prompt, show_or_write

_CommandOptions = dict[str, Any]


@click.group()
def create() -> None:
    """Add a kind or a webhook to a project."""


@create.command()
@click.option(
    "--group", help="API group. Without a dot, the project's domain is appended: `topology`."
)
@click.option("--version", "version_", help="Version, such as v1 or v1alpha1.")
@click.option("--kind", "kind_", help="Kind, such as HostInfo.")
@click.option(
    "--plural", default="", help="Plural. Defaults to kubebuilder's rule: HostInfo, hostinfoes."
)
@click.option(
    "--short-name", "short", multiple=True, help="Short name for kubectl; can be repeated."
)
@click.option(
    "--namespaced/--cluster-scoped",
    default=True,
    help="Whether objects live in namespaces. Defaults to namespaced.",
)
# The name of --cluster-scoped in earlier releases.
@click.option("--cluster-wide", is_flag=True, hidden=True)
@click.option(
    "--spec",
    "spec",
    multiple=True,
    metavar="FIELD",
    help="Field of the spec, see above; can be repeated.",
)
@click.option(
    "--status",
    "status",
    multiple=True,
    metavar="FIELD",
    help="Field of the status; can be repeated.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="NAME=FIELD,...",
    help="Object type with its fields, for use in other fields; can be repeated.",
)
@click.option("--description", default="", help="Description of the kind in `kubectl explain`.")
@click.option(
    "--owns",
    "owns",
    multiple=True,
    metavar="KIND,...",
    help="Kinds of the children that the controller creates: apps/v1/Deployment,v1/Service.",
)
@click.option(
    "--external",
    metavar="KIND",
    help="Create only a controller, for a built-in kind or one of another project: v1/Pod.",
)
@click.option(
    "--resource",
    type=bool,
    default=True,
    help="Whether to create the types. Only true is supported.",
)
@click.option("--controller", type=bool, default=True, help="Whether to create the controller.")
@click.option(
    "--storage", is_flag=True, help="For another version of a kind: store objects in this version."
)
@PROJECT_OPTION
@DRY_RUN_OPTION
@FORCE_OPTION
def api(root: Path, dry_run: bool, force: bool, **options: Any) -> None:
    """Add a kind: its types and controller, a test and a sample.

    Its entry is added to pyproject.toml ([tool.kubewright]), and its controller to main.py, or to
    the file that `build` names there. For a kind that exists, add another version of it, with its
    conversion.

    \b
    Examples:
      kubewright create api --group topology --version v1 --kind HostInfo --short-name hi
      kubewright create api --group vm --version v1 --kind VmGroup --spec replicas:int!
      kubewright create api --group web --version v1 --kind App --spec "image:str! Image to run." \\
        --spec replicas:int32=1 --spec "env:map[str]" \\
        --spec "ports:list[Port]" --type "Port=name:str!,port:int32!,protocol:enum[TCP,UDP]=TCP"
      kubewright create api --group web --version v1 --kind Site --spec image:str! \\
        --owns apps/v1/Deployment,v1/Service
      kubewright create api --external v1/Pod
      kubewright create api --group demo --version v1 --kind Greeting --dry-run
      kubewright create api --group demo --version v2 --kind Greeting

    \b
    A FIELD is NAME:TYPE, optionally followed by a space and its description:
      hostname:str            empty unless it is set
      replicas:int32!         required
      replicas:int32?         None unless it is set
      replicas:int32=3        with a default
    \b
    TYPE is one of
      str, int, int32, int64, float, bool, datetime
      int-or-string, any      a number or a string; any JSON object
      enum[A,B]               one of these values
      list[TYPE], map[TYPE]   a list; a map with strings as keys
      Port                    an object with the fields of --type "Port=name:str!,port:int32!"

    The types of Kubernetes are in the distribution kubewright-api, which --owns and --external add
    to the dependencies. For a kind of another operator, first run `kubewright import`.
    """
    if options.pop("cluster_wide"):
        options["namespaced"] = False
    project = Project.read(root)
    if options["external"]:
        _create_external(project, options, dry_run=dry_run, force=force)
        return
    parameters = _read_api_parameters(project, options)
    resource = parameters.resource
    hub = find_hub(project, resource.group, resource.kind)
    check_resource_is_new(project, resource.group, resource.version, resource.kind, resource.plural)
    if hub is None:
        module, change = resource.module, scaffold_api(project, parameters)
    else:
        module, change = version_module(resource), scaffold_version(project, parameters, hub)
    _finish(
        change,
        f"Created {resource.kind} ({resource.plural}.{resource.group}).",
        [f"src/{project.package}/kinds/{module}.py"],
        [
            f"set {missing} in {missing.function}, then remove the skip in "
            f"tests/kinds/test_{module}.py"
            for missing in find_incomplete_children(parameters.owned_kinds)
        ],
        dry_run=dry_run,
        force=force,
    )


def _create_external(
    project: Project, options: _CommandOptions, *, dry_run: bool, force: bool
) -> None:
    flags = {
        "group": "--group",
        "version_": "--version",
        "kind_": "--kind",
        "plural": "--plural",
        "short": "--short-name",
        "spec": "--spec",
        "status": "--status",
        "types": "--type",
    }
    if given := [flag for name, flag in flags.items() if options[name]]:
        raise ConfigError(f"--external names a kind that another project declares: omit {given[0]}")
    if options["owns"]:
        raise ConfigError(
            "--owns cannot be combined with --external: declare the children with `self.owns` in "
            "the controller"
        )
    kind = find_external_kind(project, options["external"])
    definition = kind.definition
    check_resource_is_new(
        project, definition.group, definition.version, kind.name, definition.plural
    )
    _finish(
        scaffold_external(project, kind),
        f"Created a controller of {kind.name} ({definition.group_resource}).",
        [f"src/{project.package}/kinds/{kind.name.lower()}.py"],
        dry_run=dry_run,
        force=force,
    )


@create.command()
@click.option("--group", help="API group of the kind; can be omitted.")
@click.option("--kind", "kind_", help="Kind of this project.")
@click.option("--version", "version_", help="Version of the kind's controller; can be omitted.")
@click.option("--defaulting", is_flag=True, help="Set fields that the request leaves out.")
@click.option(
    "--validation", "--programmatic-validation", is_flag=True, help="Reject invalid objects."
)
@click.option(
    "--conversion",
    is_flag=True,
    help="Add another version, with its conversion to and from the controller's version.",
)
@click.option(
    "--spoke",
    "spokes",
    multiple=True,
    metavar="VERSION",
    help="With --conversion: the other version, or several: v2,v3.",
)
@PROJECT_OPTION
@DRY_RUN_OPTION
@FORCE_OPTION
def webhook(root: Path, dry_run: bool, force: bool, **options: Any) -> None:
    """Add a webhook to a kind: its class, a test, and its lines in main.py and pyproject.toml.

    Certificates and webhook configurations are generated. With --conversion, add another version
    of the kind, as `create api` does: types, conversion in both directions, a test and a sample.

    \b
    Examples:
      kubewright create webhook --kind Greeting --defaulting
      kubewright create webhook --kind Greeting --defaulting --validation --dry-run
      kubewright create webhook --kind Greeting --conversion --spoke v2
    """
    change = _scaffold_webhook(Project.read(root), options)
    files = [
        path for path in change.files if path.startswith("src/") and path not in change.edited_paths
    ]
    _finish(change, "Created.", files, dry_run=dry_run, force=force)


def _finish(
    change: ChangeSet,
    message: str,
    files: Sequence[str],
    next_edits: Sequence[str] = (),
    *,
    dry_run: bool,
    force: bool,
) -> None:
    """Show or write the change with everything that follows from it, and the next steps."""
    complete, needs_format = complete_change(change)
    show_or_write(complete, dry_run=dry_run, force=force)
    if dry_run:
        return
    steps = [*(f"edit {path}" for path in files), *next_edits]
    steps += ["make format"] * needs_format + ["make test"]
    click.echo("\n".join([f"\n{message} Next:", *(f"  {step}" for step in steps)]))


def _scaffold_webhook(project: Project, options: _CommandOptions) -> ChangeSet:
    if not (options["defaulting"] or options["validation"] or options["conversion"]):
        raise ConfigError(
            "specify what the webhook does: one or more of --defaulting, --validation, --conversion"
        )
    if options["spokes"] and not options["conversion"]:
        raise ConfigError("--spoke names the other version of a conversion: add --conversion")
    kind = get_or_prompt("--kind", options["kind_"], "Kind", check_kind)
    group = qualify_group(options["group"], project.config.domain) if options["group"] else ""
    parameters = WebhookParameters(group, kind, options["defaulting"], options["validation"])
    entry = find_kind(project, parameters)
    spokes = _choose_spokes(project, entry, options)
    change = ChangeSet(project.root, {})
    if parameters.defaulting or parameters.validation:
        change = scaffold_webhook(project, parameters)
    return scaffold_conversions(project, entry, spokes, change)


def _choose_spokes(
    project: Project, entry: ResourceEntry, options: _CommandOptions
) -> tuple[str, ...]:
    version = options["version_"]
    if not options["conversion"]:
        check_hub_version(entry, version)
        return ()
    spokes = parse_spokes(project, entry, version, options["spokes"])
    return spokes or (
        get_or_prompt(
            "--spoke", None, f"Other version, in addition to {entry.version}", check_version
        ),
    )


def _read_api_parameters(project: Project, options: _CommandOptions) -> ApiParameters:
    if not options["resource"]:
        raise ConfigError(
            "--resource=false is not supported: for a kind of another project use --external, and "
            "to follow other kinds use `watches` in a controller. Omit the option"
        )
    if options["owns"] and not options["controller"]:
        raise ConfigError("--owns is for a controller: omit --controller=false")
    group = get_or_prompt("--group", options["group"], "Group, such as topology", str)
    version = get_or_prompt(
        "--version", options["version_"], "Version", check_version, suggestion="v1"
    )
    kind = get_or_prompt("--kind", options["kind_"], "Kind, such as HostInfo", check_kind)
    # All versions of a kind share the plural, so it need not be repeated.
    qualified = qualify_group(group, project.config.domain)
    plurals = (
        entry.plural
        for entry in project.config.resources
        if (entry.group, entry.kind) == (qualified, kind)
    )
    resource = build_resource_names(
        group,
        project.config.domain,
        version,
        kind,
        plural=options["plural"] or next(plurals, ""),
        short_names=options["short"],
        namespaced=options["namespaced"],
    )
    fields = parse_fields(options["spec"], options["status"], options["types"])
    for type_ in fields.types:
        check_class_name(type_.name, kind)
    return ApiParameters(
        resource,
        fields,
        check_description(options["description"]),
        options["controller"],
        options["storage"],
        parse_owned_kinds(project, options["owns"], namespaced=options["namespaced"]),
    )
