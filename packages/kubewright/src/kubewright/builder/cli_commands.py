"""The commands, their options and their help."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from .. import __name__ as program
from ..crd import build_crds
from .api_docs import render_page
from .changeset import ChangeSet, read_text_if_exists
from .cli_create import create
from .compat.baseline import CRD_FOLDER, parse_crds, read_committed_crds, read_crds_on_disk
from .compat.crd_diff import compare_crds
from .manifests.helm import build_chart, find_stale_templates
from .manifests.installer import render_installer
from .manifests.render import generate_manifests
from .names import check_domain, check_project_name
from .project import Project
from .prompt import (
    DRY_RUN_OPTION,
    PROJECT_OPTION,
    get_or_prompt,
    lock_folder,
    open_project,
    resolve_folder,
    show_or_write,
)
from .sandbox import add_generated_config
from .scaffold.project import LICENSES, ProjectParameters, scaffold_project


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name=program)
def kubewright() -> None:
    """Build Kubernetes operators in Python.

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


kubewright.add_command(create)


@kubewright.command()
@click.argument(
    "root",
    metavar="[FOLDER]",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    callback=resolve_folder,
)
@click.option("--domain", help="The domain of your API groups, such as example.com.")
@click.option(
    "--project-name", help="Begins the names of cluster-wide objects; the folder's name by default."
)
@click.option("--owner", default="", help="Whose it is; stands in LICENSE and pyproject.toml.")
@click.option(
    "--license",
    "license_",
    type=click.Choice(LICENSES, case_sensitive=False),
    default="Apache-2.0",
    show_default=True,
)
@click.option("--year", type=int, hidden=True)
@DRY_RUN_OPTION
def init(
    root: Path,
    domain: str | None,
    project_name: str | None,
    owner: str,
    license_: str,
    year: int | None,
    dry_run: bool,
) -> None:
    """Make a new project in an empty folder.

    \b
    Examples:
      kubewright init --domain example.com
      kubewright init hostinfo --domain corinternal.com --owner "Ann Example" --license MIT
      kubewright init --domain example.com --dry-run
    """
    domain = get_or_prompt(
        "--domain", domain, "Domain of your API groups, such as example.com", check_domain
    )
    told = ProjectParameters(
        check_project_name(project_name or root.name.lower().replace("_", "-")),
        domain,
        owner,
        license_,
    )
    if year is not None:
        told = ProjectParameters(told.name, told.domain, told.owner, told.license, year)
    if not dry_run:
        root.mkdir(parents=True, exist_ok=True)
    with lock_folder(root, writes=not dry_run):
        show_or_write(
            add_generated_config(scaffold_project(root, told)), dry_run=dry_run, force=False
        )
    if not dry_run:
        click.echo(
            f"\n{told.name} is ready. Next, add a kind:\n  kubewright create api --group demo --version v1 --kind Greeting"
        )


@kubewright.command(name="manifests")
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing; fail when a file is stale, or a CRD breaks what people have.",
)
@click.option(
    "--against",
    default="HEAD",
    show_default=True,
    metavar="COMMIT",
    help="The commit whose CRDs people have.",
)
@click.option(
    "--allow-breaking", is_flag=True, help="With --check: name what breaks, and do not fail for it."
)
@PROJECT_OPTION
def manifests_command(root: Path, check: bool, against: str, allow_breaking: bool) -> int:
    """Generate config/: CRDs, least-rights roles, the Deployment and its variants.

    \b
    Examples:
      kubewright manifests
      kubewright manifests --check
      kubewright manifests --check --against origin/main
    """
    with open_project(root, writes=not check) as project:
        change = generate_manifests(project)
        broken = _report_breaking_changes(change, against, fall_back_to_disk=check)
        if not check:
            for path in change.write():
                click.echo(f"removed {path}" if path in change.removed else f"wrote {path}")
            return 0
    return _report_stale_files(change, broken=broken and not allow_breaking)


def _report_stale_files(change: ChangeSet, *, broken: bool) -> int:
    """Say whether the files are as they would be generated; what `manifests --check` ends with."""
    if difference := change.diff():
        click.echo(
            f"{difference}\nThese generated files are stale; run `make manifests` and commit the result.",
            err=True,
        )
        return 1
    click.echo(f"{len(change.files)} generated files are current")
    return 1 if broken else 0


def _report_breaking_changes(change: ChangeSet, against: str, *, fall_back_to_disk: bool) -> bool:
    """Say what the generated CRDs break, compared with those of a commit, or on disk where there is none; whether that is anything."""
    new = parse_crds(
        {path: text for path, text in change.files.items() if path.startswith(CRD_FOLDER)}
    )
    old, where = read_committed_crds(change.root, against), against
    if old is None:
        old, where = (
            (read_crds_on_disk(change.root) if fall_back_to_disk else []),
            "the files on disk",
        )
    broken = [each for each in compare_crds(old, new) if each.is_breaking]
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
@click.option(
    "--overlay", default="config/default", show_default=True, help="The kustomization to render."
)
@click.option(
    "--kubectl",
    default="",
    help="The kubectl whose kustomize to use; .testenv/bin, then PATH by default.",
)
@click.option(
    "--output",
    default="dist/install.yaml",
    show_default=True,
    help="Where to write it; - prints it.",
)
@PROJECT_OPTION
def build_installer(root: Path, image: str, overlay: str, kubectl: str, output: str) -> None:
    """Write all that is deployed into one file.

    \b
    Examples:
      kubewright build-installer --image example.com/greeter:v1
      kubewright build-installer --image example.com/greeter:v1 --output - | kubectl apply -f -
      kubewright build-installer --overlay config/overlays/production
    """
    with open_project(root) as project:
        _write_output(project, render_installer(project, image, overlay, kubectl), output)


@kubewright.command()
@click.option(
    "--output", default="docs/api.md", show_default=True, help="Where to write it; - prints it."
)
@click.option("--check", is_flag=True, help="Write nothing; fail when the page is stale.")
@PROJECT_OPTION
def docs(root: Path, output: str, check: bool) -> int:
    """Write a reference of the API, in Markdown, from the types.

    \b
    Examples:
      kubewright docs
      kubewright docs --output docs/reference/api.md --check
    """
    with open_project(root, writes=not check) as project:
        text = render_page(project.name, build_crds(project.load_declarations().kinds))
        if check and read_text_if_exists(project.root / output) != text:
            click.echo(f"{output} is stale; run `make docs` and commit the result", err=True)
            return 1
        if not check:
            _write_output(project, text, output)
    return 0


@kubewright.command()
@click.option("--output", default="dist/chart", show_default=True, help="The folder of the chart.")
@PROJECT_OPTION
def helm(root: Path, output: str) -> None:
    """Write a Helm chart: the same objects as config/, with values where people differ.

    \b
    Examples:
      kubewright helm
      kubewright helm --output charts/greeter
      helm install greeter dist/chart --namespace greeter-system --create-namespace --set image=example.com/greeter:v1
    """
    with open_project(root) as project, _open_output(project.root, output) as (place, folder):
        files = {
            f"{folder}/{name}": text
            for name, text in build_chart(project, project.load_declarations()).items()
        }
        written = ChangeSet(
            place, files, frozenset(files), find_stale_templates(place, folder, files)
        ).write()
    click.echo(f"wrote {output} ({len(written)} files)" if written else f"{output} is current")


def _write_output(project: Project, text: str, output: str) -> None:
    """Print a text, or write it to a file."""
    if output == "-":
        click.echo(text, nl=False)
        return
    place = project.root / output
    if _is_special_file(place):
        place.write_text(text, encoding="utf-8")
        click.echo(f"wrote {output}", err=True)  # standard output may be that very place
        return
    with _open_output(project.root, output) as (root, path):
        written = ChangeSet(root, {path: text}).write()
    click.echo(f"wrote {output}" if written else f"{output} is current")


def _is_special_file(place: Path) -> bool:
    """Whether something is there that is written into and not replaced: a device, a pipe, a link such as /dev/stdout."""
    return os.path.lexists(place) and not place.is_dir() and not stat.S_ISREG(place.lstat().st_mode)


@contextmanager
def _open_output(root: Path, output: str) -> Iterator[tuple[Path, str]]:
    """Where to write, and under which path from there: in the project, or beside what is outside of it, which is then settled too."""
    place = Path(os.path.normpath(root / output))
    place = place.parent.resolve() / place.name
    if place.is_relative_to(root):
        yield root, place.relative_to(root).as_posix()
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with lock_folder(place.parent):
        yield place.parent, place.name
