"""Golden projects: the committed output of the builder, so that a review shows every change of it.

`make golden` writes them again.
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

from kubewright.builder import complete
from kubewright.builder.cli import main
from support.golden_projects import GOLDEN, PROJECT_CREATORS, read_project_files
from support.python_server import PythonServer

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", PROJECT_CREATORS)
def test_builder_writes_the_committed_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = PythonServer()
    if name == "greeter":
        # Many commands: the other project shows that a new Python generates the same.
        monkeypatch.setattr(complete, "run_program", server.run_program)
    try:
        written = read_project_files(PROJECT_CREATORS[name](tmp_path))
    finally:
        server.stop()
    committed = read_project_files(GOLDEN / name)
    assert written.keys() == committed.keys(), "run `make golden` and review the difference"
    stale = [path for path in written if written[path] != committed[path]]
    assert stale == [], "run `make golden` and review the difference"


def test_tests_of_a_golden_project_pass(tmp_path: Path, binaries: dict[str, Path]) -> None:
    root = Path(shutil.copytree(GOLDEN / "greeter", tmp_path / "greeter"))
    process = run_make(root, "test", binaries)
    print(process.stdout)
    assert process.returncode == 0, process.stdout + process.stderr
    assert " passed" in process.stdout


def test_new_kind_in_this_repository_passes_its_tests(
    tmp_path: Path, binaries: dict[str, Path]
) -> None:
    root = tmp_path / "repository"
    for part in ("src", "config"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "tests/kinds/conftest.py"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, root / file)
    names = ["--group", "topology", "--version", "v1", "--kind", "Trial"]
    assert main(["create", "api", "--project", str(root), *names]) == 0
    command = [sys.executable, "-m", "pytest", "-q", "tests/kinds/test_trial.py"]
    process = subprocess.run(
        command,
        cwd=root,
        env=make_environ(root, binaries),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "2 passed" in process.stdout


def test_golden_project_passes_its_checks(tmp_path: Path, binaries: dict[str, Path]) -> None:
    root = Path(shutil.copytree(GOLDEN / "greeter", tmp_path / "greeter"))
    process = run_make(root, "check", binaries)
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.parametrize("license_", ["MIT", "none"])
def test_image_has_the_license_of_the_project(tmp_path: Path, license_: str) -> None:
    root, context = tmp_path / "greeter", tmp_path / "context"
    assert main(["init", str(root), "--domain", "example.com", "--license", license_]) == 0
    context.mkdir()
    copy_build_context(root, context)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    wheel = [sys.executable, "-m", "pip", "wheel", *options, "-w", str(tmp_path), "."]
    subprocess.run(wheel, cwd=context, check=True, timeout=300)
    names = zipfile.ZipFile(tmp_path / "greeter-0.1.0-py3-none-any.whl").namelist()
    assert ("greeter-0.1.0.dist-info/licenses/LICENSE" in names) == (license_ == "MIT")
    assert ('image.licenses="MIT"' in (root / "Dockerfile").read_text()) == (license_ == "MIT")


def copy_build_context(root: Path, context: Path) -> None:
    """Copy what the first stage of the Dockerfile copies, and .dockerignore does not exclude."""
    allowed = {
        line.removeprefix("!")
        for line in (root / ".dockerignore").read_text().split()
        if line.startswith("!")
    }
    copies = re.findall(r"^COPY ((?!--).*) \S+$", (root / "Dockerfile").read_text(), re.MULTILINE)
    for source in (path.rstrip("/") for paths in copies for path in paths.split()):
        for path in (path for path in root.glob(source) if path.name in allowed):
            (shutil.copytree if path.is_dir() else shutil.copy)(path, context / path.name)


def run_make(
    root: Path, target: str, binaries: dict[str, Path]
) -> subprocess.CompletedProcess[str]:
    """Run make with the virtual environment of this test, so that nothing is downloaded."""
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
    """The project's sources first, then those of this repository."""
    paths = [str(root / "src"), *(entry for entry in sys.path if entry.endswith("src"))]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]),
        "KUBEBUILDER_ASSETS": str(binaries["etcd"].parent),
        "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache/golden"),
    }
