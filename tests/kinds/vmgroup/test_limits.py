"""What a namespace may use."""

from __future__ import annotations

import pytest

from vsphere_operators.kinds.vmgroup.limits import (
    NamespaceLimits,
    Quota,
    QuotaUsage,
    TemplateCandidate,
    find_placement_violation,
    find_quota_violation,
    select_template,
)

TEMPLATES = [
    TemplateCandidate("vm-1", "/DC0/vm/vm-operator/t"),
    TemplateCandidate("vm-2", "/DC0/vm/elsewhere/u"),
    TemplateCandidate("vm-3", "/DC0/vm/vm-operator/twice"),
    TemplateCandidate("vm-4", "/DC0/vm/elsewhere/twice"),
    TemplateCandidate("vm-5", "/DC1/vm/vm-operator/far"),
    TemplateCandidate("vm-6", "/DC0/vm/vm-operator-2/near"),
]


@pytest.mark.parametrize(
    ("wanted", "ref"),
    [
        ("t", "vm-1"),
        ("u", "vm-2"),
        ("/DC0/vm/vm-operator/t", "vm-1"),
        ("/DC0/vm/vm-operator/twice", "vm-3"),
        ("/DC0/vm/elsewhere/u", ""),
        ("/DC0/vm/vm-operator-2/near", ""),
        ("far", ""),
        ("T", ""),
        ("*", ""),
        ("../../x", ""),
        ("vm-operator/t", ""),
        ("%2f", ""),
        ("", ""),
        ("t\n", ""),
    ],
)
def test_a_template_is_found_by_exact_name_in_the_datacenter_or_by_path_in_the_operators_folder(
    wanted: str, ref: str
) -> None:
    found = select_template(wanted, TEMPLATES, "/DC0", NamespaceLimits())
    assert (found.template.ref if found.template else "") == ref
    assert bool(found.problem) == (not ref)


def test_several_of_a_name_are_all_named() -> None:
    problem = select_template("twice", TEMPLATES, "/DC0", NamespaceLimits()).problem
    assert "/DC0/vm/elsewhere/twice, /DC0/vm/vm-operator/twice" in problem
    assert "full path" in problem


def test_allowed_folders_hold_for_names_and_paths() -> None:
    limits = NamespaceLimits(template_folders=("/DC0/vm/elsewhere",))
    for wanted, ref in (("twice", "vm-4"), ("/DC0/vm/elsewhere/u", "vm-2")):
        found = select_template(wanted, TEMPLATES, "/DC0", limits)
        assert found.template is not None
        assert found.template.ref == ref
    missing = select_template("t", TEMPLATES, "/DC0", limits)
    assert (
        missing.problem
        == 'no template "t" in /DC0/vm/elsewhere; create it there, or change spec.template'
    )
    assert (
        select_template("t", TEMPLATES, "/DC0", NamespaceLimits(template_folders=())).template
        is None
    )


def test_places_are_free_unless_they_are_limited() -> None:
    limits = NamespaceLimits(allowed_placement={"resourcePool": ("team-a",), "datastore": ()})
    assert (
        find_placement_violation(
            {"cluster": "any", "resourcePool": "team-a", "datastore": ""}, limits
        )
        == ""
    )
    assert 'may not use the resourcePool "team-b" (allowed: team-a)' in find_placement_violation(
        {"resourcePool": "team-b"}, limits
    )
    assert "(allowed: none)" in find_placement_violation({"datastore": "ds1"}, limits)


def test_quotas_count_all_groups_of_the_namespace() -> None:
    ours, others = (
        QuotaUsage(vms=3, cpus=6, memory_mb=3072),
        [QuotaUsage(vms=2, cpus=2, memory_mb=2048)],
    )
    assert find_quota_violation(ours, others, Quota()) == ""
    assert find_quota_violation(ours, others, Quota(vms=5, cpus=8, memory_mb=5120)) == ""
    problem = find_quota_violation(ours, others, Quota(vms=4, cpus=7))
    assert "5 VMs are asked for, of these 3 by this group, and 4 are allowed" in problem
    assert "8 vCPUs" in problem
    assert "memory" not in problem
