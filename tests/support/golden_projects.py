"""Creates the golden projects with the commands that a user would run.

`python tests/support/golden_projects.py` writes them to tests/golden.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from kubewright.builder.cli import main

GOLDEN = Path(__file__).parents[1] / "golden"
YEAR = "2026"


def run_builder(*arguments: str) -> None:
    assert main(list(arguments)) == 0, arguments


def create_hostinfo(folder: Path) -> Path:
    """One kind, as in the first tutorial."""
    root = folder / "hostinfo"
    run_builder(
        "init", str(root), "--domain", "corinternal.com", "--owner", "Ann Example", "--year", YEAR
    )
    fields = ("--spec", "hostname:str", "--status", "totalCPU:int", "--status", "freeCPU:int")
    kind = ("--group", "topology", "--version", "v1", "--kind", "HostInfo", "--short-name", "hi")
    run_builder("create", "api", "--project", str(root), *kind, *fields)
    return root


def create_greeter(folder: Path) -> Path:
    """Every feature: versions, webhooks, nested types, children, kinds of other projects."""
    root = folder / "greeter"
    run_builder(
        "init",
        str(root),
        "--domain",
        "example.com",
        "--license",
        "MIT",
        "--owner",
        "Ann Example",
        "--year",
        YEAR,
    )
    api = ("create", "api", "--project", str(root), "--group", "demo")
    run_builder(*api, "--version", "v1", "--kind", "Greeting")
    run_builder(*api, "--version", "v2", "--kind", "Greeting", "--storage")
    run_builder(
        "create",
        "webhook",
        "--project",
        str(root),
        "--kind",
        "Greeting",
        "--defaulting",
        "--validation",
    )
    house = (
        "--cluster-scoped",
        "--description",
        "A house, its rooms and its doors.",
        "--spec",
        "rooms:int! Number of rooms.",
        "--spec",
        "doors:list[Door] Doors, the front door first.",
        "--spec",
        "labels:map[str]",
        "--type",
        "Door=name:str!,lock:Lock? Lock of the door, if it has one.",
        "--type",
        "Lock=model:enum[Pin,Cylinder]=Pin,keys:int32=2 Number of keys.",
        "--status",
        "full:bool Whether all rooms are taken.",
        "--status",
        "checked:datetime",
    )
    run_builder(*api, "--version", "v1alpha1", "--kind", "House", *house)
    run_builder("create", "webhook", "--project", str(root), "--kind", "House", "--validation")
    run_builder(
        *api, "--version", "v1", "--kind", "Street", "--controller=false", "--plural", "roads"
    )
    site = ("--spec", "image:str! Image to run.", "--spec", "replicas:int32=1 Number of Pods.")
    owned = "apps/v1/Deployment,v1/Service,v1/ConfigMap"
    run_builder(*api, "--version", "v1", "--kind", "Site", *site, "--owns", owned)
    run_builder("create", "api", "--project", str(root), "--external", "v1/Pod")
    return root


PROJECT_CREATORS = {"hostinfo": create_hostinfo, "greeter": create_greeter}


def read_project_files(root: Path) -> dict[str, str]:
    """Every file of a project but caches and build output."""
    ignored = {"__pycache__", ".testenv", ".pytest_cache", ".mypy_cache", ".ruff_cache", "dist"}
    paths = [
        path
        for path in root.rglob("*")
        if path.is_file() and not ignored & set(path.relative_to(root).parts)
    ]
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted(paths)}


def write_golden_projects() -> None:
    for name, create in PROJECT_CREATORS.items():
        with tempfile.TemporaryDirectory() as folder:
            project = create(Path(folder))
            shutil.rmtree(GOLDEN / name, ignore_errors=True)
            shutil.copytree(project, GOLDEN / name)


if __name__ == "__main__":
    write_golden_projects()
