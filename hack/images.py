"""Lists the images that a mirror needs: those of config/default, of every component and of the
chart.

    python -m hack.images --image registry.example/vsphere-operators:v1
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from kubewright.yaml_text import parse_documents

from .lint_manifests.rendering import render_all

# The image that config/manager names; make deploy replaces it with IMG.
_PLACEHOLDER = "controller:latest"


def find_images(value: Any) -> set[str]:
    """The values of `image` in the containers of all objects."""
    if isinstance(value, list):
        return {image for item in value for image in find_images(item)}
    if not isinstance(value, dict):
        return set()
    containers = [
        container
        for field in ("containers", "initContainers")
        for container in value.get(field) or ()
        if isinstance(container, dict)
    ]
    images = {container["image"] for container in containers if "image" in container}
    return images | {image for item in value.values() for image in find_images(item)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hack.images", description=__doc__)
    parser.add_argument("--image", default=_PLACEHOLDER, help="the image of the manager")
    image = parser.parse_args().image
    with tempfile.TemporaryDirectory() as folder:
        images = {
            name
            for path in render_all(Path(folder).resolve())
            for document in parse_documents(path.read_text(), str(path))
            for name in find_images(document)
        }
    for name in sorted(image if name == _PLACEHOLDER else name for name in images):
        print(name)


if __name__ == "__main__":
    main()
