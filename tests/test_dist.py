"""The distributions of all packages, installed into an empty environment and used outside of the
clone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from collections.abc import Mapping
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from hack.dist import PACKAGES, ROOT, check_sources

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
NAMES = ("kubewright", "kubewright_api", "vsphere_operators")


def run(*command: str | Path, cwd: Path, environ: Mapping[str, str] | None = None) -> str:
    process = subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of make dist, which runs these tests with DIST_FOLDER, or the same without its
    tools: each wheel built from its source distribution.
    """
    if given := os.environ.get("DIST_FOLDER"):
        return Path(given).absolute()
    folder = tmp_path_factory.mktemp("dist")
    for package in PACKAGES:
        build = (sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder)
        run(*build, cwd=ROOT / package)
    sources = sorted(folder.glob("*.tar.gz"))
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    run(sys.executable, "-m", "pip", "wheel", *options, *sources, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def environ(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a shell in which an empty environment with the wheels is active."""
    work = tmp_path_factory.mktemp("install")
    venv.create(work / "venv")
    # The versions of the locks: a new release of a dependency must not fail this test.
    pins = [
        pin
        for lock in ("runtime", "dev")
        for pin in re.findall(
            r"^([a-z0-9].*?) \\$", (ROOT / f"requirements/{lock}.txt").read_text(), re.MULTILINE
        )
    ]
    (work / "constraints.txt").write_text("\n".join(dict.fromkeys(pins)))
    wheels = {path.name.partition("-")[0]: path.as_uri() for path in folder.glob("*.whl")}
    extras = {"kubewright": "[builder]"}
    requirements = [f"{name}{extras.get(name, '')} @ {wheels[name]}" for name in NAMES]
    pip = (sys.executable, "-m", "pip", "--python", work / "venv/bin/python")
    run(*pip, "install", "--quiet", "-c", "constraints.txt", *requirements, cwd=work)
    run(*pip, "check", cwd=work)
    path = f"{work / 'venv/bin'}:{ROOT / '.testenv/bin'}:{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"PATH": path, "VIRTUAL_ENV": str(work / "venv"), "KUBECONFIG": os.devnull}


def test_files_that_are_not_in_git_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "src/vsphere_operators"
    source.mkdir(parents=True)
    check_sources(tmp_path)
    run("git", "init", "--quiet", cwd=tmp_path)
    (tmp_path / ".gitignore").write_text("*.pyc\n")
    (source / "module.pyc").touch()
    (tmp_path / "notes.txt").touch()
    check_sources(tmp_path)
    (source / "module.swp").touch()
    with pytest.raises(SystemExit, match=r"src/vsphere_operators/module\.swp\. Add them to git"):
        check_sources(tmp_path)


def read_metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def test_every_package_has_the_version_of_the_repository(folder: Path) -> None:
    expected = [f"{name}-{VERSION}{end}" for name in NAMES for end in (".tar.gz", ".whl")]
    names = [path.name.replace("-py3-none-any", "") for path in folder.iterdir()]
    assert sorted(names) == sorted(expected)


@pytest.mark.parametrize("name", NAMES)
def test_metadata_is_complete(folder: Path, name: str) -> None:
    metadata = read_metadata(folder / f"{name}-{VERSION}-py3-none-any.whl")
    assert metadata["Summary"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["Requires-Python"] == ">=3.11"
    classifiers = metadata.get_all("Classifier", [])
    for minor in range(11, 15):
        assert f"Programming Language :: Python :: 3.{minor}" in classifiers
    own = [
        requirement
        for text in metadata.get_all("Requires-Dist", [])
        if (requirement := Requirement(text)).name == "kubewright"
    ]
    assert len(own) == (0 if name == "kubewright" else 1)
    # Another minor release of kubewright is not accepted; see docs/explanation/releases.md.
    major, minor, *_ = map(int, VERSION.split("."))
    for requirement in own:
        assert VERSION in requirement.specifier
        assert f"{major}.{minor + 1}.0" not in requirement.specifier


def test_source_distribution_of_the_manager_has_only_its_sources(folder: Path) -> None:
    with tarfile.open(folder / f"vsphere_operators-{VERSION}.tar.gz") as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    unexpected = {name for name in names if not name.startswith("src/vsphere_operators/")}
    assert unexpected == {
        *(".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml")
    }


def test_manager_runs_outside_of_the_clone(environ: dict[str, str], tmp_path: Path) -> None:
    process = subprocess.run(
        ["manager"], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 1
    # The whole program was loaded, and searched for a cluster.
    assert "kubeconfig" in process.stderr
    assert "Traceback" not in process.stderr
    assert "-vcenter-credentials" in run("manager", "-help", cwd=tmp_path, environ=environ)


def test_real_kubectl_finds_the_plugin(
    environ: dict[str, str], binaries: object, tmp_path: Path
) -> None:
    assert shutil.which("kubectl", path=environ["PATH"])
    output = run("kubectl", "vsphere", "version", cwd=tmp_path, environ=environ)
    assert f"vsphere-operators {VERSION} (kubewright {VERSION}, " in output


def test_kubewright_creates_a_project(environ: dict[str, str], tmp_path: Path) -> None:
    run("kubewright", "init", "shop", "--domain", "example.org", cwd=tmp_path, environ=environ)
    project = tmp_path / "shop"
    kind = ("--group", "store", "--version", "v1", "--kind", "Order")
    owned = ("--owns", "apps/v1/Deployment")
    run("kubewright", "create", "api", *kind, *owned, cwd=project, environ=environ)
    source = environ | {"PYTHONPATH": str(project / "src")}
    run("kubewright", "manifests", cwd=project, environ=source)
    assert (project / "config/crd/bases/store.example.org_orders.yaml").exists()
