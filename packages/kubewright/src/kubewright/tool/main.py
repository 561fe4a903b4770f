"""The `kubewright` command."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..errors import ConfigError
from .manifests import manifests, stale, write
from .project import Project


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0 if it did what it should, 1 if not."""
    parser = argparse.ArgumentParser(prog="kubewright", description="Builds Kubernetes operators in Python.")
    commands = parser.add_subparsers(dest="command", required=True)
    generate = commands.add_parser(
        "manifests",
        help="write CRDs and RBAC to config/",
        description="Generates config/crd and config/rbac from the types and controllers.",
    )
    generate.add_argument("--check", action="store_true", help="write nothing; fail and show the difference when files are stale")
    generate.add_argument("--project", type=Path, default=Path(), help="the folder of the project (default: this one)")
    arguments = parser.parse_args(argv)
    try:
        return generate_manifests(Project.read(arguments.project.resolve()), check=arguments.check)
    except ConfigError as error:
        print(f"kubewright: {error}", file=sys.stderr)
        return 1


def generate_manifests(project: Project, *, check: bool) -> int:
    """Write the generated files, or say which of them are stale."""
    files = manifests(project)
    if not check:
        for path in write(project, files):
            print(f"wrote {path}")
        return 0
    difference = stale(project, files)
    if difference:
        print(f"{difference}\nThese generated files are stale; run `make manifests` and commit the result.", file=sys.stderr)
        return 1
    print(f"{len(files)} generated files are current")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
