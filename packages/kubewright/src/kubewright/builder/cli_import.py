"""The command `kubewright import`: types for the kinds of other operators."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from ..errors import ConfigError
from .changeset import ChangeSet, read_text_if_exists
from .project import Project
from .terminal import DRY_RUN_OPTION, FORCE_OPTION, PROJECT_OPTION, show_or_write
from .typegen.crd_files import download_crds, fetch_crds_from_cluster, read_crd_file
from .typegen.crd_modules import (
    GENERATED_MARKER,
    choose_class_name,
    read_crd_name,
    render_version,
)
from .typegen.crd_source import Crd
from .typegen.crd_test_files import TEST_CRD_FOLDER, render_test_crd
from .typegen.names import module_name

_DEFAULT_FOLDER = "external"


@click.command(name="import")
@click.argument("sources", nargs=-1, metavar="[FILE|URL]...")
@click.option(
    "--from-cluster",
    "cluster_names",
    multiple=True,
    metavar="NAME",
    help="CRD of the cluster in your kubeconfig, as `kubectl get crd` lists it; can be repeated.",
)
@click.option("--kubeconfig", default="", help="With --from-cluster: path of the kubeconfig.")
@click.option("--context", default="", help="With --from-cluster: context of the kubeconfig.")
@click.option(
    "--version",
    "versions",
    multiple=True,
    metavar="VERSION",
    help="Version to import, such as v1; can be repeated. Defaults to all versions.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Folder to write to. Defaults to src/PACKAGE/{_DEFAULT_FOLDER} of the project.",
)
@PROJECT_OPTION
@DRY_RUN_OPTION
@FORCE_OPTION
def import_command(
    root: Path,
    sources: tuple[str, ...],
    cluster_names: tuple[str, ...],
    kubeconfig: str,
    context: str,
    versions: tuple[str, ...],
    output: Path | None,
    dry_run: bool,
    force: bool,
) -> None:
    """Write types for the kinds of other operators, from their CRDs.

    Each version of a CRD becomes a module. Its classes work wherever a kind does: in a controller,
    in the cache, and with the client. No CRD and no status is written for such a kind. A project
    also gets the CRDs in tests/crds, which its tests install.

    \b
    Examples:
      kubewright import cert-manager.crds.yaml
      kubewright import https://example.com/crds.yaml --version v1
      kubewright import --from-cluster certificates.cert-manager.io
    """
    if not sources and not cluster_names:
        raise click.UsageError("specify a FILE or URL with CRDs, or --from-cluster NAME")
    folder, package = _choose_folder(root, output)
    crds = [crd for source in sources for crd in _read_source(source)]
    crds += fetch_crds_from_cluster(cluster_names, kubeconfig, context) if cluster_names else []
    modules = _render_modules(crds, versions, folder)
    files = {f"{name}.py": source for name, (_, source) in modules.items()}
    if (folder.parent / "__init__.py").exists() and not (folder / "__init__.py").exists():
        files["__init__.py"] = ""
    if output is None:
        prefix, folder = folder.relative_to(root).as_posix(), root
        files = {f"{prefix}/{path}": text for path, text in files.items()}
        files |= {
            f"{TEST_CRD_FOLDER}/{crd.name}.yaml": render_test_crd(crd)
            for crd in crds
            if crd.document
        }
    generated = frozenset(path for path in files if _is_generated(folder / path))
    show_or_write(ChangeSet(folder, files, generated), dry_run=dry_run, force=force)
    if not dry_run:
        lines = (f"  from {package}{name} import {class_}" for name, (class_, _) in modules.items())
        click.echo("\n".join(["\nUse them with:", *lines]))


def _choose_folder(root: Path, output: Path | None) -> tuple[Path, str]:
    """The folder to write to, and the prefix of the modules in it."""
    if output is not None:
        return output.resolve(), ""
    try:
        package = Project.read(root).package
    except ConfigError as error:
        raise ConfigError(f"{error}, or choose a folder with --output") from None
    return root / "src" / package / _DEFAULT_FOLDER, f"{package}.{_DEFAULT_FOLDER}."


def _read_source(source: str) -> list[Crd]:
    if source.startswith(("http://", "https://")):
        return download_crds(source)
    return read_crd_file(Path(source))


def _render_modules(
    crds: list[Crd], versions: tuple[str, ...], folder: Path
) -> Mapping[str, tuple[str, str]]:
    """Class of the kind and source of each module, by the name of the module."""
    modules: dict[str, tuple[str, str]] = {}
    origins: dict[str, str] = {}
    # Sorted, so that the order of the arguments does not decide which CRD gets the short name.
    for crd in sorted(crds, key=lambda crd: crd.name):
        for version in crd.spec.versions:
            if versions and version.name not in versions:
                continue
            name = _choose_module_name(crd, version.name, folder, origins)
            origins[name] = crd.name
            modules[name] = choose_class_name(crd, version), render_version(crd, version)
    if not modules:
        available = sorted({version.name for crd in crds for version in crd.spec.versions})
        raise ConfigError(
            f"no CRD has the version {' or '.join(versions)}; they have {', '.join(available)}"
        )
    return modules


def _choose_module_name(crd: Crd, version: str, folder: Path, origins: Mapping[str, str]) -> str:
    """The name with the first part of the group; with all of it if another CRD has that name."""
    group, kind = crd.spec.group, crd.spec.names.kind
    short, full = (module_name(part, version, kind) for part in (group.partition(".")[0], group))
    owners = {
        name: origins.get(name) or read_crd_name(read_text_if_exists(folder / f"{name}.py") or "")
        for name in (short, full)
    }
    if owners[short] in (None, crd.name) and owners[full] != crd.name:
        return short
    if owners[full] in (None, crd.name):
        return full
    raise ConfigError(
        f"{crd.name} {version} needs the module {full}.py, which has the types of {owners[full]}; "
        "import one of them to another folder with --output"
    )


def _is_generated(path: Path) -> bool:
    return (read_text_if_exists(path) or "").startswith(GENERATED_MARKER)
