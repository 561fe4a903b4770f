"""What tests of the builder type, and what they find on disk afterwards."""

from __future__ import annotations

from pathlib import Path

from kubewright.builder.cli import main


def create_api(
    project: Path, *options: str, kind: str = "Greeting", version: str = "v1", group: str = "demo"
) -> int:
    return main(
        [
            "create",
            "api",
            "--project",
            str(project),
            "--group",
            group,
            "--version",
            version,
            "--kind",
            kind,
            *options,
        ]
    )


def read_project_bytes(root: Path) -> dict[str, bytes]:
    """Every file of a project but what Python leaves."""
    paths = [path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
