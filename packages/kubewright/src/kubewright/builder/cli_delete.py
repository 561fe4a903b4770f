"""The commands `kubewright delete api` and `kubewright delete webhook`, which undo `create`."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import ConfigError
from .changeset import ChangeSet
from .complete import complete_change
from .names import check_kind, check_version, qualify_group
from .project import Project, ResourceEntry
from .scaffold.leftover_imports import find_leftover_imports
from .scaffold.removal import (
    find_other_samples,
    find_versions,
    remove_kind,
    remove_version,
    remove_webhook,
)
from .terminal import DRY_RUN_OPTION, PROJECT_OPTION, get_or_prompt, show_or_write

_FORCE_OPTION = click.option(
    "--force",
    is_flag=True,
    help="Delete also files that were changed, and change files with uncommitted changes.",
)
_GROUP_OPTION = click.option("--group", default="", help="API group of the kind; can be omitted.")
_KIND_OPTION = click.option("--kind", "kind_", help="Kind of this project.")


@click.group()
def delete() -> None:
    """Remove a kind or a webhook from a project: undo `create`.

    Deleted are the files that `create` wrote, its lines in main.py and its entry in pyproject.toml.
    config/ is generated again. A file that is not as it was first committed is deleted only with
    --force, and without it nothing is changed.
    """


@delete.command()
@_GROUP_OPTION
@click.option(
    "--version",
    "version_",
    help="Version to remove. Without it, the kind with all versions and its webhook is removed.",
)
@_KIND_OPTION
@PROJECT_OPTION
@DRY_RUN_OPTION
@_FORCE_OPTION
def api(
    root: Path, group: str, version_: str | None, kind_: str | None, dry_run: bool, force: bool
) -> None:
    """Remove a kind, or one version of it.

    \b
    Examples:
      kubewright delete api --kind Greeting
      kubewright delete api --group demo --version v2 --kind Greeting --dry-run
    """
    project, versions = _find_kind(root, group, kind_)
    if version_ is None:
        change, removed = remove_kind(project, versions), versions
    else:
        change = remove_version(project, versions, check_version(version_))
        removed = [entry for entry in versions if entry.version == version_]
    _finish(project, change, removed, dry_run=dry_run, force=force)
    if dry_run:
        return
    crd = f"{versions[0].plural}.{versions[0].group}"
    if versions[0].external:
        # Kubernetes or another operator owns the CRD and the objects.
        click.echo(f"\nDeleted the controller of {versions[0].kind}.")
    elif len(removed) == len(versions):
        click.echo(
            f"\nDeleted {versions[0].kind}. Clusters keep its CRD and its objects. "
            f"To remove both there:\n  kubectl delete crd {crd}"
        )
    else:
        click.echo(
            f"\nDeleted {removed[0].kind} {removed[0].version}. In clusters that may have stored "
            "objects in this version, the API server rejects the new CRD until\n"
            f"  kubectl get crd {crd} -o jsonpath='{{.status.storedVersions}}'\n"
            "does not list it any more."
        )


@delete.command()
@_GROUP_OPTION
@_KIND_OPTION
@click.option(
    "--conversion", is_flag=True, help="Remove another version, as `delete api --version` does."
)
@click.option(
    "--spoke", metavar="VERSION", help="With --conversion: the version to remove, such as v2."
)
@PROJECT_OPTION
@DRY_RUN_OPTION
@_FORCE_OPTION
def webhook(
    root: Path,
    group: str,
    kind_: str | None,
    conversion: bool,
    spoke: str | None,
    dry_run: bool,
    force: bool,
) -> None:
    """Remove the webhook of a kind, for defaulting and validation.

    \b
    Examples:
      kubewright delete webhook --kind Greeting
      kubewright delete webhook --kind Greeting --conversion --spoke v2
    """
    if conversion != (spoke is not None):
        raise ConfigError("--conversion and --spoke belong together: --conversion --spoke v2")
    project, versions = _find_kind(root, group, kind_)
    if spoke is not None:
        change = remove_version(project, versions, check_version(spoke))
        removed = [entry for entry in versions if entry.version == spoke]
    else:
        hub = next((entry for entry in versions if entry.webhooks), versions[0])
        change, removed = remove_webhook(project, hub), []
    _finish(project, change, removed, dry_run=dry_run, force=force)


def _find_kind(root: Path, group: str, kind: str | None) -> tuple[Project, list[ResourceEntry]]:
    project = Project.read(root)
    kind = get_or_prompt("--kind", kind, "Kind", check_kind)
    qualified = qualify_group(group, project.config.domain) if group else ""
    return project, find_versions(project, qualified, kind)


def _finish(
    project: Project,
    change: ChangeSet,
    removed: list[ResourceEntry],
    *,
    dry_run: bool,
    force: bool,
) -> None:
    # Before the project is generated: that takes seconds, and this is the more likely error.
    if not (dry_run or force):
        change.check_removable()
    samples = find_other_samples(project, removed)
    complete, _ = complete_change(change)
    show_or_write(complete, dry_run=dry_run, force=force)
    for path in samples:
        click.echo(f"kept {path}, which has an object of the kind")
    for place in find_leftover_imports(complete):
        click.echo(f"{place}, which is deleted: remove the import")
