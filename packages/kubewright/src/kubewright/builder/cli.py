"""The `kubewright` command: most subcommands, and the exit codes."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from ..crd import build_crds
from ..errors import KubewrightError
from ..yaml_text import to_yaml
from .api_docs import render_page
from .changeset import ChangeSet, find_stale, read_text_if_exists
from .chart import CHART_HEADER, build_chart
from .cli_create import create
from .cli_delete import delete
from .cli_deploy import deploy
from .cli_import import import_command
from .cli_run import run
from .cli_test_env import test_env
from .cli_undeploy import undeploy
from .cli_uninstall import uninstall
from .compat.baseline import CRD_FOLDER, parse_crds, read_baseline
from .compat.crd_diff import compare_crds
from .compat.report import format_breaking_changes, format_policies
from .compat.rules import POLICIES, expand_policies
from .complete import complete_change
from .git import run_git
from .manifests.descriptions import format_undescribed
from .manifests.installer import render_installer
from .manifests.render import generate_manifests
from .names import check_domain, check_project_name
from .overlays import normalize_overlay
from .project import Project
from .scaffold.project import LICENSES, ProjectParameters, scaffold_project
from .terminal import (
    DRY_RUN_OPTION,
    FORCE_OPTION,
    PROJECT_OPTION,
    get_or_prompt,
    resolve_folder,
    show_or_write,
    write_change,
)

# What a shell reports for a process that Ctrl-C ended.
_INTERRUPTED_EXIT_CODE = 130


def main(argv: list[str] | None = None) -> int:
    """Run one command: 0 if it succeeded, 1 if it failed, 2 for a wrong command line."""
    try:
        # Not in standalone mode, in which click exits the process: tests of projects call main().
        exit_code = kubewright.main(argv, prog_name="kubewright", standalone_mode=False)
        return exit_code if isinstance(exit_code, int) else 0
    except click.Abort:
        print("\nkubewright: interrupted", file=sys.stderr)
        return _INTERRUPTED_EXIT_CODE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except KubewrightError as error:
        print(f"kubewright: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        file = f"{error.filename}: " if error.filename else ""
        print(f"kubewright: {file}{error.strerror or error}", file=sys.stderr)
        return 1


# Wider than click's 80 columns: the example commands do not fit into those.
@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="kubewright")
def kubewright() -> None:
    """Build Kubernetes operators in Python.

    \b
    From an empty folder to a tested operator:
      kubewright init --domain example.com
      kubewright create api --group demo --version v1 --kind Greeting
      make test
      make install run

    \b
    To enable shell completion for this session (also zsh_source, fish_source):
      eval "$(_KUBEWRIGHT_COMPLETE=bash_source kubewright)"
    """


kubewright.add_command(create)
kubewright.add_command(delete)
kubewright.add_command(deploy)
kubewright.add_command(undeploy)
kubewright.add_command(uninstall)
kubewright.add_command(import_command)
kubewright.add_command(run)
kubewright.add_command(test_env)


@kubewright.command()
@click.argument(
    "root",
    metavar="[FOLDER]",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    callback=resolve_folder,
)
@click.option("--domain", help="Domain of your API groups, such as example.com.")
@click.option(
    "--project-name",
    help="Prefix of the names of cluster-scoped objects. Defaults to the folder's name.",
)
@click.option("--owner", default="", help="Copyright owner in LICENSE and pyproject.toml.")
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
    """Create a new project in an empty folder.

    \b
    Examples:
      kubewright init --domain example.com
      kubewright init hostinfo --domain corinternal.com --owner "Ann Example" --license MIT
      kubewright init --domain example.com --dry-run
    """
    domain = get_or_prompt(
        "--domain", domain, "Domain of your API groups, such as example.com", check_domain
    )
    name = check_project_name(project_name or root.name.lower().replace("_", "-"))
    parameters = ProjectParameters(name, domain, owner, license_, year)
    change, _ = complete_change(scaffold_project(root, parameters))
    show_or_write(change, dry_run=dry_run, force=False)
    if dry_run:
        return
    steps = ["kubewright create api --group demo --version v1 --kind Greeting"]
    if run_git(root, "rev-parse", "--git-dir") is None:
        steps.insert(0, f'git init && git add -A && git commit -m "Create {name}"')
    if root != Path.cwd():
        steps.insert(0, f"cd {shlex.quote(os.path.relpath(root))}")
    click.echo(f"\nCreated {name}. Commit it, then add a kind:\n  " + "\n  ".join(steps))


_MANIFESTS_HELP = f"""Generate config/: CRDs, least-privilege roles, the Deployment, its variants.

\b
Examples:
  kubewright manifests
  kubewright manifests --check
  kubewright manifests --check --against origin/main
  kubewright manifests --check --policy enum-value-added

With --check, a CRD change that breaks manifests, stored objects or scripts of users is an error.
Other changes break only some programs. Each policy makes one class of them an error, too:

\b
{format_policies()}

To compare with the CRDs in a cluster, and to find versions that are still in
status.storedVersions there:

\b
  kubectl get crds -o yaml > crds.yaml
  kubewright manifests --check --against crds.yaml
"""


@kubewright.command(name="manifests", help=_MANIFESTS_HELP)
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing; fail if a file is stale, or if a CRD change breaks existing users.",
)
@click.option(
    "--against",
    default="HEAD",
    show_default=True,
    metavar="COMMIT|FILE",
    help="Commit with the CRDs that users have, or a YAML or JSON file with them.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(list(POLICIES)),
    metavar="POLICY",
    help="Class of changes that count as breaking, too, see above; can be repeated.",
)
@click.option(
    "--allow-breaking", is_flag=True, help="With --check: report breaking changes, but do not fail."
)
@PROJECT_OPTION
@FORCE_OPTION
def manifests_command(
    root: Path,
    check: bool,
    against: str,
    policies: tuple[str, ...],
    allow_breaking: bool,
    force: bool,
) -> int:
    change = generate_manifests(Project.read(root))
    crds = parse_crds(
        {path: text for path, text in change.files.items() if path.startswith(CRD_FOLDER)}
    )
    old, source = read_baseline(root, against, crds, fall_back_to_disk=check)
    breaking = format_breaking_changes(compare_crds(old, crds), expand_policies(policies), source)
    for text in (*format_undescribed(crds), *([breaking] if breaking else [])):
        click.echo(text, err=True)
    if not check:
        for path in write_change(change, force=force):
            click.echo(f"removed {path}" if path in change.removed else f"wrote {path}")
        return 0
    if difference := change.diff():
        click.echo(
            f"{difference}\n"
            "These generated files are stale. Run `make manifests` and commit the result.",
            err=True,
        )
        return 1
    click.echo(f"{len(change.files)} generated files are up to date")
    return 1 if breaking and not allow_breaking else 0


@kubewright.command(name="build-installer")
@click.option("--image", default="", help="Image to run. Defaults to the image of the project.")
@click.option(
    "--overlay", default="config/default", show_default=True, help="Kustomization to render."
)
@click.option(
    "--kubectl",
    default="",
    help="kubectl to run kustomize with. Defaults to .testenv/bin/kubectl, then PATH.",
)
@click.option(
    "--output",
    default="dist/install.yaml",
    show_default=True,
    help="File to write; - for standard output.",
)
@PROJECT_OPTION
def build_installer(root: Path, image: str, overlay: str, kubectl: str, output: str) -> None:
    """Write everything that `kubewright deploy` applies into one file.

    \b
    Examples:
      kubewright build-installer --image example.com/greeter:v1
      kubewright build-installer --image example.com/greeter:v1 --output - | kubectl diff -f -
      kubewright build-installer --overlay config/overlays/production
    """
    project = Project.read(root)
    documents = render_installer(project, image, normalize_overlay(project, overlay), kubectl)
    _write_output(root, to_yaml(*documents), output)


@kubewright.command()
@click.option(
    "--output",
    default="docs/api.md",
    show_default=True,
    help="File to write; - for standard output.",
)
@click.option("--check", is_flag=True, help="Write nothing; fail if the page is stale.")
@PROJECT_OPTION
def docs(root: Path, output: str, check: bool) -> int:
    """Write an API reference in Markdown, generated from the types.

    \b
    Examples:
      kubewright docs
      kubewright docs --output docs/reference/api.md --check
    """
    project = Project.read(root)
    text = render_page(project.name, build_crds(project.load_declarations().kinds))
    if not check:
        _write_output(root, text, output)
    elif read_text_if_exists(root / output) != text:
        click.echo(f"{output} is stale. Run `make docs` and commit the result.", err=True)
        return 1
    return 0


@kubewright.command()
@click.option("--output", default="dist/chart", show_default=True, help="Folder of the chart.")
@click.option("--check", is_flag=True, help="Write nothing; fail if a file is stale.")
@PROJECT_OPTION
def helm(root: Path, output: str, check: bool) -> int:
    """Write a Helm chart: the objects of config/, with values for the options of an installation.

    \b
    Examples:
      kubewright helm
      kubewright helm --output charts/greeter --check
      helm install greeter dist/chart -n greeter-system --create-namespace \\
        --set image.repository=example.com/greeter --set image.tag=v1
    """
    project = Project.read(root)
    files = build_chart(project, project.load_declarations())
    chart = root / output
    stale = find_stale(chart, "templates/*.yaml", files, CHART_HEADER)
    if project.config.chart_dashboards:
        # JSON has no comments, so every file there counts as generated.
        stale += find_stale(chart, "dashboards/*.json", files, "")
    change = ChangeSet(chart, files, removed=stale)
    if check and (difference := change.diff()):
        click.echo(
            f"{difference}\n{output} is stale. Run `make helm` and commit the result.", err=True
        )
        return 1
    written = change.write()
    click.echo(f"wrote {output} ({len(written)} files)" if written else f"{output} is up to date")
    return 0


def _write_output(root: Path, text: str, output: str) -> None:
    if output == "-":
        click.echo(text, nl=False)
        return
    (root / output).parent.mkdir(parents=True, exist_ok=True)
    (root / output).write_text(text, encoding="utf-8")
    # Not to standard output: `--output /dev/stdout` may have sent the text there.
    click.echo(f"wrote {output}", err=True)


if __name__ == "__main__":
    raise SystemExit(main())
