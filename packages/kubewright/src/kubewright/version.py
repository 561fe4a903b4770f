"""The version of an installed package."""

from __future__ import annotations

from importlib import metadata


def read_version(distribution: str = "kubewright") -> str:
    """From the metadata that the installer wrote, which has the version of pyproject.toml.

    "unknown" without metadata, as for a source tree on PYTHONPATH.
    """
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"
