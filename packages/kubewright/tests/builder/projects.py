"""Projects that tests make, as a person would: by the command."""

from __future__ import annotations

from pathlib import Path

from kubewright.builder.main import main

ROOT = Path(__file__).parents[4]
YEAR = "2026"


def done(*words: str) -> None:
    """Run a command that has to work."""
    assert main(list(words)) == 0, words


def make_greeter(folder: Path) -> Path:
    """Two versions, the second one stored, a webhook, a cluster-wide kind, and a kind without a controller."""
    root = folder / "greeter"
    done("init", str(root), "--domain", "example.com", "--license", "MIT", "--owner", "Ann Example", "--year", YEAR)
    api = ("create", "api", "--project", str(root), "--group", "demo")
    done(*api, "--version", "v1", "--kind", "Greeting")
    done(*api, "--version", "v2", "--kind", "Greeting", "--storage")
    done("create", "webhook", "--project", str(root), "--kind", "Greeting", "--defaulting", "--validation")
    house = ("--cluster-wide", "--spec", "rooms:int!", "--spec", "doors:strings", "--status", "full:bool")
    done(*api, "--version", "v1alpha1", "--kind", "House", *house)
    done(*api, "--version", "v1", "--kind", "Street", "--controller=false", "--plural", "roads")
    return root


def files_of(root: Path) -> dict[str, str]:
    """Every file of a project but what running it leaves."""
    paths = [path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted(paths)}
