"""Access reviews, and the commands that bind roles: plain calls."""

from __future__ import annotations

import re

import pytest

from kubewright.rbac import build_rule
from vsphere_operators.doctor.installation import Installation
from vsphere_operators.doctor.rbac import (
    AccessReview,
    Grant,
    _access_reviews_for,
    _binding_command,
    _denied_findings,
)

from .users import USERS

ROLE = Grant(role="vsphere-operators-manager-role", rules=[])


@pytest.mark.parametrize(("user", "fix"), USERS.items())
def test_fix_binds_the_generated_role_and_never_a_wider_one(user: str, fix: str) -> None:
    command = _binding_command(user, ROLE, Installation())
    assert command.endswith(fix)
    assert "cluster-admin" not in command
    binding = re.search(r"create clusterrolebinding (\S+) ", command)
    assert binding is None or re.fullmatch(r"[a-z0-9-]+", binding[1])


def test_every_verb_of_every_rule_is_reviewed_for_each_name() -> None:
    rules = [
        build_rule([""], ["nodes"], ["list", "watch"]),
        build_rule(["g.io"], ["things"], ["get"], ("a", "b")),
    ]
    reviews = _access_reviews_for(Grant(role="r", rules=rules, namespace="ns"))
    assert reviews == [
        AccessReview("list", "", "nodes", "ns"),
        AccessReview("watch", "", "nodes", "ns"),
        AccessReview("get", "g.io", "things", "ns", "a"),
        AccessReview("get", "g.io", "things", "ns", "b"),
    ]
    assert reviews[2]._resource_title == 'things.g.io "a"'


def test_denied_verbs_of_a_resource_are_one_finding() -> None:
    denied = [
        AccessReview("list", "", "nodes", ""),
        AccessReview("watch", "", "nodes", ""),
        AccessReview("patch", "g.io", "things/status", ""),
    ]
    assert [
        finding.message for finding in _denied_findings(denied, "me", ROLE, Installation())
    ] == [
        'nodes is forbidden: user "me" cannot list or watch at the cluster scope',
        'things/status.g.io is forbidden: user "me" cannot patch at the cluster scope',
    ]
