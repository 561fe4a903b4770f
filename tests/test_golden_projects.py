"""Golden projects: what the builder writes, committed, so that a review sees every change of it; each is a working project.

`make golden` writes them anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kubewright.builder.cli import main
from support.golden_projects import GOLDEN, PROJECT_CREATORS, read_project_files

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", PROJECT_CREATORS)
def test_the_builder_writes_what_is_committed(name: str, tmp_path: Path) -> None:
    made, committed = (
        read_project_files(PROJECT_CREATORS[name](tmp_path)),
        read_project_files(GOLDEN / name),
    )
    assert made.keys() == committed.keys(), "run `make golden` and look at the difference"
    stale = [path for path in made if made[path] != committed[path]]
    assert stale == [], "run `make golden` and look at the difference"


def test_a_golden_projects_own_tests_pass_on_the_real_api_server(
    tmp_path: Path, binaries: dict[str, Path]
) -> None:
    """The one with everything; a project with one kind is tested where the road to it is measured."""
    root = Path(shutil.copytree(GOLDEN / "greeter", tmp_path / "greeter"))
    done = run_make(root, "test", binaries)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_a_new_kind_works_in_this_repository_as_it_is_generated(
    tmp_path: Path, binaries: dict[str, Path]
) -> None:
    root = tmp_path / "repository"
    for part in ("src", "config"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "tests/kinds/conftest.py"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, root / file)
    assert (
        main(
            [
                "create",
                "api",
                "--project",
                str(root),
                "--group",
                "topology",
                "--version",
                "v1",
                "--kind",
                "Trial",
            ]
        )
        == 0
    )
    command = [sys.executable, "-m", "pytest", "-q", "tests/kinds/test_trial.py"]
    done = subprocess.run(
        command,
        cwd=root,
        env=make_environ(root, binaries),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_a_golden_project_with_everything_passes_its_own_checks(
    tmp_path: Path, binaries: dict[str, Path]
) -> None:
    root = Path(shutil.copytree(GOLDEN / "greeter", tmp_path / "greeter"))
    done = run_make(root, "check", binaries)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("license_", ["MIT", "none"])
def test_a_generated_image_has_the_projects_licence(tmp_path: Path, license_: str) -> None:
    root, context = tmp_path / "greeter", tmp_path / "context"
    assert main(["init", str(root), "--domain", "example.com", "--license", license_]) == 0
    context.mkdir()
    copy_build_context(root, context)
    wheel = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-w",
        str(tmp_path),
        ".",
    ]
    subprocess.run(wheel, cwd=context, check=True, timeout=300)
    names = zipfile.ZipFile(tmp_path / "greeter-0.1.0-py3-none-any.whl").namelist()
    assert ("greeter-0.1.0.dist-info/licenses/LICENSE" in names) == (license_ == "MIT")
    assert ('image.licenses="MIT"' in (root / "Dockerfile").read_text()) == (license_ == "MIT")


def copy_build_context(root: Path, context: Path) -> None:
    """What the Dockerfile's first stage has of the project, as its .dockerignore lets it through: names at the top."""
    allowed = {
        line.removeprefix("!")
        for line in (root / ".dockerignore").read_text().split()
        if line.startswith("!")
    }
    copies = re.findall(r"^COPY ((?!--).*) \S+$", (root / "Dockerfile").read_text(), re.MULTILINE)
    for source in (each.rstrip("/") for words in copies for each in words.split()):
        for path in (path for path in root.glob(source) if path.name in allowed):
            (shutil.copytree if path.is_dir() else shutil.copy)(path, context / path.name)


def run_make(
    root: Path, target: str, binaries: dict[str, Path]
) -> subprocess.CompletedProcess[str]:
    """Run make as a person would, but with this environment in the place of one that would have to be downloaded."""
    venv = Path(sys.prefix)
    command = ["make", f"VENV={venv}", "-o", f"{venv}/ready", target]
    return subprocess.run(
        command,
        cwd=root,
        env=make_environ(root, binaries),
        capture_output=True,
        text=True,
        timeout=300,
    )


def make_environ(root: Path, binaries: dict[str, Path]) -> dict[str, str]:
    """The project's own sources first, ours for the rest."""
    paths = [str(root / "src"), *(entry for entry in sys.path if entry.endswith("src"))]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
        "KUBEBUILDER_ASSETS": str(binaries["etcd"].parent),
        "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache/golden"),
    }
