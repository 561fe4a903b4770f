"""The command line of the plugin, and what it writes."""

from __future__ import annotations

import io
import sys

import pytest

from vsphere_operators.kubectl import command
from vsphere_operators.kubectl.command import FLAG_DEFAULTS, main, parse_arguments


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["-n", "other", "-o", "wide"], []),
        ([], ["-n", "other", "-o", "wide"]),
        (["--namespace=other"], ["-o", "wide"]),
        (["-n", "first", "-o", "wide"], ["-n", "other"]),
    ],
)
def test_flags_may_stand_before_the_command_and_after_it(
    before: list[str], after: list[str]
) -> None:
    options = vars(parse_arguments([*before, "top", "vms", *after]))
    assert options == {
        **FLAG_DEFAULTS,
        "namespace": "other",
        "output": "wide",
        "command": "top",
        "what": "vms",
    }


def test_every_flag_has_a_default() -> None:
    everything = [
        "-A",
        "-n=a",
        "-o=json",
        "--kubeconfig=k",
        "--context=c",
        "--vcenter",
        "--vcenters=f",
        "--vcenter-ca-file=g",
        "--insecure",
    ]
    given = vars(parse_arguments(["tree", *everything]))
    assert set(given) == {*FLAG_DEFAULTS, "command"}
    assert all(given[name] != default for name, default in FLAG_DEFAULTS.items())
    assert vars(parse_arguments(["tree"])) == {**FLAG_DEFAULTS, "command": "tree"}


def test_one_object_has_one_namespace(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse_arguments(["-A", "why", "gpu", "gpu1"])
    assert (
        "-A is for top and tree; why shows one object. Name its namespace: -n NAMESPACE"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("output", "shown"), [([], b"?? n\xe4me\n"), (["-o", "json"], "└─ näme\n".encode())]
)
def test_a_terminal_that_is_not_utf_8_shows_what_it_can(
    output: list[str], shown: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(*_: object) -> str:
        return "└─ näme"

    taken = io.BytesIO()
    monkeypatch.setattr(command, "run_command", answer)
    monkeypatch.setattr(command, "configure_logging", lambda _: None)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(taken, encoding="latin-1"))
    assert main(["tree", *output], {}) == 0
    assert taken.getvalue() == shown
