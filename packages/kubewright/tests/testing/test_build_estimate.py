from __future__ import annotations

from pathlib import Path

import pytest

from kubewright.testing.build_estimate import BuildEstimate

# Without a program to link, the cost of the packages alone.
NO_PROGRAM = 0


@pytest.fixture
def listed(tmp_path: Path) -> list[str]:
    """What `go list` prints: two small packages, a large one, and one that Go's cache has."""
    (tmp_path / "large.go").write_bytes(b" " * 96_000)
    return [
        "go: downloading example.com/module v1.0.0\n",
        f"true|small|0|{tmp_path}|missing.go\n",
        f"true|importing|10|{tmp_path}|\n",
        f"true|large|0|{tmp_path}|large.go,missing.go\n",
        f"false|cached|0|{tmp_path}|large.go\n",
    ]


def test_packages_count_by_size_and_dependencies(listed: list[str]) -> None:
    estimate = BuildEstimate(listed, NO_PROGRAM, processors=1)
    # 2,000 for each package, 200 for each dependency, 96,000 bytes of source: 104,000 in total.
    assert estimate.share([], 0) == 0
    assert estimate.share(["small"], 1) == 0
    assert estimate.share(["small", "importing"], 2) == pytest.approx(2000 / 104_000)
    assert estimate.share(["small", "importing", "large"], 6) == pytest.approx(6000 / 104_000)


def test_share_grows_at_the_rate_so_far_while_a_package_is_compiled(listed: list[str]) -> None:
    estimate = BuildEstimate(listed, NO_PROGRAM, processors=1)
    packages = ["small", "importing", "large"]
    shares = [estimate.share(packages, seconds) for seconds in (6, 7, 16, 1000)]
    assert shares == pytest.approx([6000 / 104_000, 7000 / 104_000, 16_000 / 104_000, 1])


def test_packages_that_run_at_the_same_time_are_not_done(listed: list[str]) -> None:
    estimate = BuildEstimate(listed, NO_PROGRAM, processors=2)
    assert estimate.share(["small", "importing"], 1) == 0
    assert estimate.share(["small", "importing", "large"], 2) == pytest.approx(2000 / 104_000)


def test_linking_costs_a_share_of_all_packages(listed: list[str]) -> None:
    estimate = BuildEstimate(listed, programs=5, processors=1)
    link_cost = 5 * 0.006 * (104_000 + 98_000)
    packages = ["small", "importing", "large"]
    assert estimate.share(packages, 6) == pytest.approx(6000 / (104_000 + link_cost))
    assert estimate.share(packages, 1000) == 1


def test_description_counts_packages_until_the_last_one_has_begun(listed: list[str]) -> None:
    estimate = BuildEstimate(listed, programs=1)
    assert estimate.describe([]) == "0 of 3 packages"
    assert estimate.describe(["small", "importing"]) == "2 of 3 packages"
    assert estimate.describe(["small", "importing", "large"]) == "linking"


def test_nothing_to_compile_is_only_linked() -> None:
    estimate = BuildEstimate(["false|main|0|/nowhere|main.go"], programs=1)
    assert estimate.describe([]) == "linking"
    assert estimate.share([], 10) == 0
