"""The command line of `kubectl vsphere`, and its output."""

from __future__ import annotations

import io
import json
import sys

import msgspec
import pytest

from vsphere_operators.kubectl import command
from vsphere_operators.kubectl.command import FLAG_DEFAULTS, _parse_arguments, main
from vsphere_operators.version import VERSIONS


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["-n", "other", "-o", "wide"], []),
        ([], ["-n", "other", "-o", "wide"]),
        (["--namespace=other"], ["-o", "wide"]),
        (["-n", "first", "-o", "wide"], ["-n", "other"]),
    ],
)
def test_flags_may_stand_before_and_after_the_command(before: list[str], after: list[str]) -> None:
    options = vars(_parse_arguments([*before, "top", "vms", *after]))
    assert options == {
        **FLAG_DEFAULTS,
        "namespace": "other",
        "output": "wide",
        "command": "top",
        "what": "vms",
    }


def test_every_flag_has_a_default() -> None:
    flags = [
        "-A",
        "-n=a",
        "-o=json",
        "--kubeconfig=k",
        "--context=c",
        "--lease=a/b",
        "--vcenter",
        "--vcenters=f",
        "--vcenter-ca-file=g",
        "--insecure",
        "--page=p",
        "--manager-namespace=m",
    ]
    parsed = vars(_parse_arguments(["tree", *flags]))
    assert set(parsed) == {*FLAG_DEFAULTS, "command"}
    assert all(parsed[name] != default for name, default in FLAG_DEFAULTS.items())
    assert vars(_parse_arguments(["tree"])) == {**FLAG_DEFAULTS, "command": "tree"}


def test_all_namespaces_is_rejected_for_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        _parse_arguments(["-A", "why", "gpu", "gpu1"])
    assert (
        "-A is for top and tree; why shows one object. Specify its namespace: -n NAMESPACE"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("flags", "expected"), [([], b"?? n\xe4me\n"), (["-o", "json"], "└─ näme\n".encode())]
)
def test_terminal_without_utf_8_gets_question_marks(
    flags: list[str], expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(*_: object) -> str:
        return "└─ näme"

    output_bytes = io.BytesIO()
    monkeypatch.setattr(command, "_run_command", run)
    monkeypatch.setattr(command, "configure_logging", lambda _: None)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output_bytes, encoding="latin-1"))
    assert main(["tree", *flags], {}) == 0
    assert output_bytes.getvalue() == expected


@pytest.mark.parametrize("flags", [[], ["-o", "json"]])
def test_version_needs_no_cluster(
    flags: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "configure_logging", lambda _: None)
    assert main(["version", *flags], {"KUBECONFIG": "/nonexistent"}) == 0
    output = capsys.readouterr().out
    assert output.strip() == (
        json.dumps(msgspec.to_builtins(VERSIONS), indent=2) if flags else str(VERSIONS)
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["doctor"], "the doctor is a command of the manager: run `manager doctor`"),
        (["doctor", "-o", "json"], "run `manager doctor`"),
        (["what-if", "esxi-1"], "specify a host: kubectl vsphere what-if host esxi-1"),
        (["what-if", "host"], "specify a host: kubectl vsphere what-if host NAME"),
    ],
)
def test_near_miss_names_the_right_command(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        _parse_arguments(argv)
    assert message in capsys.readouterr().err
