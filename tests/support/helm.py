"""The real `helm`, with folders of its own."""

from __future__ import annotations

import copy
import functools
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from kubewright.testing.go_module import build_module
from kubewright.yaml_text import parse_documents

ROOT = Path(__file__).parents[2]
Json = dict[str, Any]
Objects = dict[tuple[str, str, str], Json]
TIMEOUT_SECONDS = 180


class HelmFailed(Exception):
    """What helm wrote to standard error."""


class Helm:
    """Runs helm with the folder for its configuration, and a kubeconfig if it needs a cluster."""

    def __init__(self, folder: Path, kubeconfig: Path | None = None) -> None:
        (self._program,) = build_module(ROOT / "testenv/helm", ROOT / ".testenv/bin", build=False)
        self._folder = folder
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "KUBECONFIG": str(kubeconfig or folder / "none"),
            # A command ends before garbage matters; collecting it is a fifth of the time.
            "GOGC": "off",
        }

    def run(self, *arguments: str, values: Json | None = None) -> str:
        """Standard output of one command; the values are those of --values."""
        if values is not None:
            file = self._folder / "values.yaml"
            file.write_text(yaml.safe_dump(values))
            arguments = (*arguments, "--values", str(file))
        process = subprocess.run(
            [str(self._program), *arguments],
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        if process.returncode:
            raise HelmFailed(process.stderr)
        return process.stdout

    def template(self, chart: Path, namespace: str, values: Json) -> Objects:
        """The objects of the chart by kind, namespace and name."""
        command = ("template", "release", str(chart), "--namespace", namespace)
        return parse_objects(self.run(*command, values=values))


def parse_objects(text: str) -> Objects:
    # CRDs are most of the output, and equal with most values: each text is parsed once.
    documents = [
        copy.deepcopy(document)
        for part in re.split(r"^---$", text, flags=re.MULTILINE)
        if (document := _parse_document(part))
    ]
    objects = {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item
        for item in documents
    }
    assert len(objects) == len(documents)
    return objects


@functools.cache
def _parse_document(text: str) -> Json | None:
    # With libyaml: the CRDs take PyYAML's own parser a second.
    document: Json | None
    (document,) = parse_documents(text, "the output") or [None]
    return document
