"""Checks of the repository: locks, make targets and the size of modules."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from kubewright.version import NEWEST_KUBERNETES, OLDEST_KUBERNETES

ROOT = Path(__file__).parents[1]


def requirement_names(requirements: list[str]) -> set[str]:
    return {
        re.split(r"[<>=\[; ]", line)[0].lower().replace("_", "-")
        for line in requirements
        if line and not line.startswith(("#", "-"))
    }


def test_runtime_lock_covers_the_declared_dependencies() -> None:
    library = tomllib.loads((ROOT / "packages/kubewright/pyproject.toml").read_text())["project"]
    application = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = (
        requirement_names(library["dependencies"])
        | requirement_names(library["optional-dependencies"]["tls"])
        | requirement_names(application["dependencies"])
    )
    required = requirement_names((ROOT / "requirements/runtime.in").read_text().splitlines())
    assert declared - {"kubewright"} == required
    locked = requirement_names((ROOT / "requirements/runtime.txt").read_text().splitlines())
    assert required <= locked


def test_the_lock_of_the_demo_is_a_part_of_the_development_lock() -> None:
    # `make setup` installs the second over the first, and must not replace packages.
    demo, dev = (
        set(re.findall(r"^[a-z0-9][^ ]*==[^ ]+", (ROOT / f"requirements/{name}").read_text(), re.M))
        for name in ("demo.txt", "dev.txt")
    )
    assert demo
    assert demo <= dev


@pytest.mark.parametrize(
    "page", ["README.md", "docs/howto/install.md", "packages/kubewright/README.md"]
)
def test_pages_state_the_supported_versions_of_kubernetes(page: str) -> None:
    text = " ".join((ROOT / page).read_text().split())
    assert f"Kubernetes {OLDEST_KUBERNETES} to {NEWEST_KUBERNETES}" in text


def test_every_pin_has_a_hash() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        text = lock.read_text()
        pins = re.findall(r"^[a-z0-9].*==.*$", text, re.MULTILINE)
        assert pins, lock
        assert all(pin.endswith("\\") for pin in pins), lock


def test_make_help_describes_every_target() -> None:
    output = subprocess.run(
        ["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    assert phony is not None
    # No target is the name of a file, so that an equally named file cannot make it up to date.
    assert sorted(targets) == sorted(phony[1].replace("\\\n", " ").split())
    for target in targets:
        assert re.search(rf"make {target} +\S+ \S+", output), target


def test_no_module_has_more_than_400_lines() -> None:
    sources = [*ROOT.glob("src/**/*.py"), *ROOT.glob("packages/kubewright/src/**/*.py")]
    assert len(sources) > 30
    long = {
        path.name: lines for path in sources if (lines := len(path.read_text().splitlines())) > 400
    }
    assert not long
