"""The file of -vmgroup-limits and its error messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubewright.errors import ConfigError
from vsphere_operators.kinds.vmgroup.limits import NamespaceLimits, read_limits
from vsphere_operators.kinds.vmgroup.model import Quota

LIMITS_YAML = """\
limits:
  - namespaces: ["team-a", "team-a-*"]
    templateFolders: ["/DC0/vm/vm-operator/team-a"]
    places: {cluster: [C0], datastore: []}
    quota: {vms: 20, cpus: 40, memoryGB: 64}
  - namespaces: ["team-*"]
    quota: {vms: 5}
"""


def write_limits(folder: Path, text: str) -> str:
    file = folder / "limits.yaml"
    file.write_text(text)
    return str(file)


def test_the_first_matching_entry_applies(tmp_path: Path) -> None:
    limits = read_limits(write_limits(tmp_path, LIMITS_YAML))
    full = NamespaceLimits(
        template_folders=("/DC0/vm/vm-operator/team-a",),
        allowed_placement={"cluster": ("C0",), "datastore": ()},
        quota=Quota(vms=20, cpus=40, memory_mb=65536),
    )
    assert limits("team-a") == limits("team-a-west") == full
    assert limits("team-b") == NamespaceLimits(quota=Quota(vms=5))
    assert limits("default") == read_limits("")("default") == NamespaceLimits()


def test_the_flag_limits_templates_where_the_file_does_not(tmp_path: Path) -> None:
    limits = read_limits(write_limits(tmp_path, LIMITS_YAML), ("/DC0/vm/golden",))
    assert limits("team-a").template_folders == ("/DC0/vm/vm-operator/team-a",)
    assert limits("team-b") == NamespaceLimits(
        quota=Quota(vms=5), template_folders=("/DC0/vm/golden",)
    )
    assert limits("default").template_folders == ("/DC0/vm/golden",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("limits: [{namespaces: []}]", "line 1: limits[0].namespaces: the list is empty"),
        (
            "limits:\n- namespaces: [A_b]",
            'line 2: limits[0].namespaces[0]: "A_b" matches no namespace',
        ),
        (
            "limits:\n- namespaces: [a]\n  quota: {vms: many}",
            "line 3: limits[0].quota.vms: expected a whole number (digits only), got a string",
        ),
        *[
            (
                f"limits:\n- namespaces: [a]\n  quota: {{vms: {number}}}",
                "line 3: limits[0].quota.vms: expected a whole number (digits only), got a number",
            )
            for number in ("1.5", "-1", "1_000", "0x10", "1:30", ".inf")
        ],
        (
            "limits:\n- namespaces: [a]\n  quota: {ram: 3}",
            "line 3: limits[0].quota: there is no key `ram`; the keys here are vms, cpus, memoryGB",
        ),
        (
            "limits:\n- namespaces: [a]\n  templateFolders: [x]",
            'line 3: limits[0].templateFolders: "x" must be a full inventory path',
        ),
        (
            "limits:\n- namespaces: [a]\n  places:\n    pool: [x]",
            "line 4: limits[0].places.pool: unknown field; use one of datacenter, cluster",
        ),
        ("", "line 1: the file is empty; it must begin with `limits:`"),
    ],
)
def test_an_error_in_the_file_is_reported_with_its_line(
    tmp_path: Path, content: str, message: str
) -> None:
    file = write_limits(tmp_path, content)
    with pytest.raises(ConfigError) as raised:
        read_limits(file)
    assert f"{file} {message}" in str(raised.value)
