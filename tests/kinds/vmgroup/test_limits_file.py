"""The file of -vmgroup-limits: what it means for a namespace, and words with the line for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubewright.errors import ConfigError
from vsphere_operators.kinds.vmgroup.limits import NamespaceLimits, Quota, read_limits

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


def test_the_first_entry_that_fits_counts(tmp_path: Path) -> None:
    limits = read_limits(write_limits(tmp_path, LIMITS_YAML))
    full = NamespaceLimits(
        template_folders=("/DC0/vm/vm-operator/team-a",),
        allowed_placement={"cluster": ("C0",), "datastore": ()},
        quota=Quota(vms=20, cpus=40, memory_mb=65536),
    )
    assert limits("team-a") == limits("team-a-west") == full
    assert limits("team-b") == NamespaceLimits(quota=Quota(vms=5))
    assert limits("default") == read_limits("")("default") == NamespaceLimits()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("limits: [{namespaces: []}]", "line 1: limits[0].namespaces: the list is empty"),
        (
            "limits:\n- namespaces: [A_b]",
            'line 2: limits[0].namespaces[0]: "A_b" fits no namespace',
        ),
        (
            "limits:\n- namespaces: [a]\n  quota: {vms: many}",
            "line 3: limits[0].quota.vms: expected a number, got a string",
        ),
        (
            "limits:\n- namespaces: [a]\n  quota: {ram: 3}",
            "line 3: limits[0].quota: there is no key `ram`; the keys here are vms, cpus, memoryGB",
        ),
        (
            "limits:\n- namespaces: [a]\n  templateFolders: [x]",
            'line 3: limits[0].templateFolders: "x" has to be a full inventory path',
        ),
        (
            "limits:\n- namespaces: [a]\n  places:\n    pool: [x]",
            "line 4: limits[0].places.pool: there is no such place",
        ),
        ("", "line 1: the file is empty; it must begin with `limits:`"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, wrong: str, words: str) -> None:
    file = write_limits(tmp_path, wrong)
    with pytest.raises(ConfigError) as refused:
        read_limits(file)
    assert f"{file} {words}" in str(refused.value)
