"""The version of an installed package, and the supported versions of Kubernetes."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress

# The tests of the runtime run on both. kubernetes/ in kubewright.testing pins them.
OLDEST_KUBERNETES, NEWEST_KUBERNETES = "1.33", "1.36"


def read_version(distribution: str = "kubewright") -> str:
    """From the metadata that the installer wrote, which has the version of pyproject.toml.

    "unknown" without metadata, as for a source tree on PYTHONPATH.
    """
    # The installer wrote the folder NAME-VERSION.dist-info. importlib.metadata would read the
    # version from a file in it, but its import takes 15 ms, which every start would pay.
    prefix, suffix = f"{distribution.replace('-', '_')}-", ".dist-info"
    for folder in sys.path:
        with suppress(OSError):
            for name in os.listdir(folder or "."):
                if name.startswith(prefix) and name.endswith(suffix):
                    return name.removeprefix(prefix).removesuffix(suffix)
    return "unknown"


def compare_kubernetes(version: str) -> int:
    """-1 for a version of Kubernetes before the supported ones, 1 for one after them, 0 otherwise.

    The version is that of an API server, such as "v1.36.3" or "v1.33.5+k3s1"; 0 for one that has
    no numbers.
    """
    match = re.match(r"v?(\d+)\.(\d+)", version)
    if match is None:
        return 0
    minor = (int(match[1]), int(match[2]))
    if minor < _parse_minor(OLDEST_KUBERNETES):
        return -1
    return int(minor > _parse_minor(NEWEST_KUBERNETES))


def _parse_minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)
