"""The sample of `create api`, and what its test shows if it does not match the types."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

from ..builder_commands import create_api

SAMPLE = "config/samples/demo_v1_greeting.yaml"


def test_sample_has_the_given_defaults(project: Path) -> None:
    fields = ["--spec", "image:str=memcached:1.6", "--spec", "port:int32=8080"]
    assert create_api(project, *fields) == 0
    sample = yaml.safe_load((project / SAMPLE).read_text())
    assert sample["spec"] == {"image": "memcached:1.6", "port": 8080}


def test_scaffolded_test_names_a_sample_that_does_not_match(project: Path) -> None:
    assert create_api(project, "--spec", "port:int32=8080") == 0
    file = project / SAMPLE
    file.write_text(file.read_text().replace("8080", "http"))
    paths = [str(project / "src"), *(entry for entry in sys.path if entry.endswith("src"))]
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/kinds"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert process.returncode != 0
    assert f"{file} does not match Greeting: " in process.stdout
    assert "Expected `int`, got `str` - at `$.spec.port`" in process.stdout
