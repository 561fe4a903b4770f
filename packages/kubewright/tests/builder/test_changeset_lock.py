"""Commands beside each other: each works on what the one before it has left, so that no change is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kubewright.builder.exchange import lock_project

TIMEOUT_SECONDS = 120


def start_create_api(project: Path, kind: str) -> subprocess.Popen[bytes]:
    words = [
        "create",
        "api",
        "--project",
        str(project),
        "--group",
        "demo",
        "--version",
        "v1",
        "--kind",
        kind,
    ]
    return subprocess.Popen([sys.executable, "-m", "kubewright", *words], stdout=subprocess.DEVNULL)


def test_two_kinds_that_are_made_at_once_are_both_there(project: Path) -> None:
    with lock_project(project):  # both have begun before either may read
        writers = [start_create_api(project, kind) for kind in ("Alpha", "Beta")]
    assert [writer.wait(TIMEOUT_SECONDS) for writer in writers] == [0, 0]
    for file in ("pyproject.toml", "src/greeter/main.py"):
        text = (project / file).read_text()
        assert "Alpha" in text, file
        assert "Beta" in text, file
    made = sorted(path.name for path in (project / "config/crd/bases").iterdir())
    assert made == ["demo.example.com_alphas.yaml", "demo.example.com_betas.yaml"]
