"""The golden projects: how each is made, by the commands that a person would type. `python tests/goldens.py` writes them anew."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from kubewright.builder.cli import main

GOLDEN = Path(__file__).parent / "golden"
YEAR = "2026"


def done(*words: str) -> None:
    """Run a command that has to work."""
    assert main(list(words)) == 0, words


def hostinfo(folder: Path) -> Path:
    """One kind, as the first tutorial has it."""
    root = folder / "hostinfo"
    done("init", str(root), "--domain", "corinternal.com", "--owner", "Ann Example", "--year", YEAR)
    fields = ("--spec", "hostname:str", "--status", "totalCPU:int", "--status", "freeCPU:int")
    kind = ("--group", "topology", "--version", "v1", "--kind", "HostInfo", "--short-name", "hi")
    done("create", "api", "--project", str(root), *kind, *fields)
    return root


def greeter(folder: Path) -> Path:
    """Two versions, the second one stored, webhooks, a cluster-wide kind with a required field, and a kind without a controller."""
    root = folder / "greeter"
    done(
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
    done(*api, "--version", "v1", "--kind", "Greeting")
    done(*api, "--version", "v2", "--kind", "Greeting", "--storage")
    done(
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
        "--cluster-wide",
        "--spec",
        "rooms:int!",
        "--spec",
        "doors:strings",
        "--status",
        "full:bool",
    )
    done(*api, "--version", "v1alpha1", "--kind", "House", *house)
    done("create", "webhook", "--project", str(root), "--kind", "House", "--validation")
    done(*api, "--version", "v1", "--kind", "Street", "--controller=false", "--plural", "roads")
    return root


MAKERS = {"hostinfo": hostinfo, "greeter": greeter}


def files_of(root: Path) -> dict[str, str]:
    """Every file of a project but what running it leaves."""
    left = {"__pycache__", ".testenv", ".pytest_cache", ".mypy_cache", ".ruff_cache", "dist"}
    paths = [
        path
        for path in root.rglob("*")
        if path.is_file() and not left & set(path.relative_to(root).parts)
    ]
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted(paths)}


def write() -> None:
    """Write the golden projects anew."""
    for name, maker in MAKERS.items():
        with tempfile.TemporaryDirectory() as folder:
            made = maker(Path(folder))
            shutil.rmtree(GOLDEN / name, ignore_errors=True)
            shutil.copytree(made, GOLDEN / name)


if __name__ == "__main__":
    write()
