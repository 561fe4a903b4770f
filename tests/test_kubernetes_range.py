"""The supported versions of Kubernetes are the same wherever they are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubewright.testing import pins
from kubewright.version import NEWEST_KUBERNETES, OLDEST_KUBERNETES, compare_kubernetes

ROOT = Path(__file__).parents[1]
RANGE = f"Kubernetes {OLDEST_KUBERNETES} to {NEWEST_KUBERNETES}"


@pytest.mark.parametrize(
    "page", ["README.md", "docs/howto/install.md", "packages/kubewright/README.md", "CHANGELOG.md"]
)
def test_page_names_the_range(page: str) -> None:
    assert RANGE in (ROOT / page).read_text()


@pytest.mark.parametrize("page", ["docs/howto/try.md", "CONTRIBUTING.md"])
def test_page_names_the_oldest_version_as_an_option(page: str) -> None:
    assert f"KUBERNETES={OLDEST_KUBERNETES}" in (ROOT / page).read_text()


def test_both_ends_of_the_range_are_pinned() -> None:
    folder = Path(pins.__file__).parent / "kubernetes"
    assert {path.name for path in folder.iterdir()} == {OLDEST_KUBERNETES, NEWEST_KUBERNETES}


@pytest.mark.parametrize(
    ("version", "difference"),
    [
        ("v1.32.99", -1),
        (f"v{OLDEST_KUBERNETES}.0", 0),
        (f"{NEWEST_KUBERNETES}.9+vmware.1", 0),
        ("v1.37.0-alpha.1", 1),
        ("v0.9.0", -1),
        ("v2.0.0", 1),
        ("", 0),
    ],
)
def test_versions_are_compared_with_the_range(version: str, difference: int) -> None:
    assert compare_kubernetes(version) == difference
