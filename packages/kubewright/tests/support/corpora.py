"""Data of other projects to compare with. It is next to the repository and never part of it."""

from __future__ import annotations

from pathlib import Path

import pytest


def find_corpus(name: str) -> Path:
    """The folder or file shared/corpora/<name> above the repository; skips the test without it."""
    for folder in Path(__file__).resolve().parents:
        path = folder / "shared/corpora" / name
        if path.exists():
            return path
    pytest.skip(f"shared/corpora/{name} is not on this machine")
