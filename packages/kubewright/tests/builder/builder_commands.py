"""Commands that tests of the builder run, and the files of a project afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kubewright.builder.cli import main
from support.python_server import PythonServer

PYTHON_SERVER = PythonServer()


def create_api(
    project: Path, *options: str, kind: str = "Greeting", version: str = "v1", group: str = "demo"
) -> int:
    names = ["--group", group, "--version", version, "--kind", kind]
    return main(["create", "api", "--project", str(project), *names, *options])


def create_webhook(project: Path, *options: str, kind: str = "Greeting") -> int:
    return main(["create", "webhook", "--project", str(project), "--kind", kind, *options])


def run_manifests(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `manifests` in a process of its own: it imports the project, and Python caches that."""
    command = [sys.executable, "-m", "kubewright", "manifests", "--project", str(project)]
    return PYTHON_SERVER.run([*command, *options])


def read_project_bytes(root: Path) -> dict[str, bytes]:
    """Every file of a project but byte code and the files of git."""
    ignored = {"__pycache__", ".git"}
    paths = [
        path
        for path in root.rglob("*")
        if path.is_file() and not ignored & set(path.relative_to(root).parts)
    ]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def run_git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com"]
    command = ["git", "-C", str(root), *identity, *arguments]
    subprocess.run(command, check=True, capture_output=True)


def commit_project(root: Path) -> None:
    run_git(root, "init", "-q")
    run_git(root, "add", "-A")
    run_git(root, "commit", "-qm", "test: commit the project")
