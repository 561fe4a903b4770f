"""The contract's flags, in Go's syntax, as existing manifests pass them."""

from __future__ import annotations

import pytest

from kubewright.flags import FlagError, parse
from vsphere_operators.settings import Settings


def settings(*argv: str, **environ: str) -> Settings:
    return parse(Settings, argv, environ)


def test_defaults() -> None:
    made = settings()
    assert (made.metrics_address, made.leader_election, made.insecure, made.health_address) == (":8080", False, False, "")


@pytest.mark.parametrize("argv", [["-insecure"], ["--insecure"], ["-insecure=true"], ["--insecure=1"]])
def test_insecure_as_existing_manifests_write_it(argv: list[str]) -> None:
    assert settings(*argv).insecure


@pytest.mark.parametrize("name", ["-metrics-addr", "--metrics-addr", "--metrics-bind-address"])
def test_the_metrics_address_has_two_names(name: str) -> None:
    assert settings(f"{name}=:9090").metrics_address == ":9090"
    assert settings(name, ":9090").metrics_address == ":9090"


@pytest.mark.parametrize("name", ["--enable-leader-election", "--leader-elect", "-leader-elect"])
def test_leader_election_has_two_names(name: str) -> None:
    assert settings(name).leader_election


def test_a_deployment_of_the_originals_still_parses() -> None:
    made = settings("--metrics-addr=127.0.0.1:8080", "--enable-leader-election", "-insecure", "--kubeconfig", "/x", "--master=https://m")
    assert (made.kubeconfig, made.master) == ("/x", "https://m")


def test_the_environment_stands_behind_the_flags() -> None:
    assert settings(METRICS_ADDR=":1").metrics_address == ":1"
    assert settings("--metrics-addr=:2", METRICS_ADDR=":1").metrics_address == ":2"


def test_namespaces_are_a_list() -> None:
    assert settings("--watch-namespaces=a, b,").options("m").namespaces == ("a", "b")


def test_an_unknown_flag_is_named_with_a_guess() -> None:
    with pytest.raises(FlagError, match=r"-metrics-adr.*metrics-addr"):
        settings("--metrics-adr=:1")
