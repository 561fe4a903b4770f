"""Builds the wheels and source distributions of all packages, and checks them.

    python -m hack.dist [FOLDER]

Each wheel is built from its source distribution, so a file that the source distribution lacks is
missing in the wheel too, and the checks of the wheel find it.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("packages/kubewright", "packages/kubewright-api", ".")
# pyproject.toml names neither a person nor an address: the organization that publishes the packages
# adds both.
_SKIPPED_RATINGS = "Author,AuthorEmail,Url"


def check_sources(root: Path) -> None:
    """Ends the program if a package would contain a file that no commit has."""
    folders = [f"{package}/src" for package in PACKAGES]
    try:
        process = subprocess.run(
            ["git", "ls-files", "--others", "--exclude-standard", "--", *folders],
            cwd=root,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        return
    # Without a repository, as in an unpacked archive, git ends with an error and prints no name.
    if files := process.stdout.splitlines():
        raise SystemExit(
            f"These files are not in git, but the packages would contain them: {', '.join(files)}. "
            "Add them to git, or remove them."
        )


def build_packages(folder: Path) -> list[Path]:
    """Replaces the content of the folder with new distributions; returns them."""
    folder.mkdir(parents=True, exist_ok=True)
    # Built elsewhere first: after a failure the folder has the complete older distributions.
    with tempfile.TemporaryDirectory() as temporary:
        for package in PACKAGES:
            _run_module("build", "--no-isolation", "--outdir", temporary, str(ROOT / package))
        for old in (*folder.glob("*.whl"), *folder.glob("*.tar.gz")):
            old.unlink()
        return sorted(
            Path(shutil.move(path, folder / path.name)) for path in Path(temporary).iterdir()
        )


def check_distributions(distributions: list[Path]) -> None:
    """Ends the program with the output of the first check that fails."""
    wheels = [str(path) for path in distributions if path.suffix == ".whl"]
    _run_module("check_wheel_contents", *wheels)
    _run_module("twine", "check", "--strict", *map(str, distributions))
    for path in distributions:
        if path.suffix != ".whl":
            _run_module("pyroma", "--min", "10", "--skip-tests", _SKIPPED_RATINGS, str(path))


def _run_module(module: str, *arguments: str) -> None:
    process = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if process.returncode:
        raise SystemExit(
            f"{process.stdout}\n{module} {' '.join(arguments)} failed; its output is above"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hack.dist", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist/packages")
    folder = parser.parse_args().folder
    check_sources(ROOT)
    distributions = build_packages(folder)
    check_distributions(distributions)
    for path in distributions:
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")


if __name__ == "__main__":
    main()
