"""The verdicts of crdify on its own pairs of CRDs, compared with ours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from kubewright.builder.compat.crd_diff import compare_crds
from kubewright.builder.compat.rules import expand_policies

from ...support.corpora import find_corpus

ALL = expand_policies(["all"])
# Where crdify is stricter than our default, and the policy that gives its verdict. None of these
# changes rejects a manifest that applied.
DIFFERENT_BY_DEFAULT = {
    "descriptionchanged": "description-changed",
    "enumvalueadded": "enum-value-added",
    "nullableadded": "null-allowed",
    "patternremoved": "pattern-removed",
    "requiredfieldadded": "required-with-default",
}


def our_paths(case: Path, policies: frozenset[str]) -> set[str]:
    """The paths of breaking changes: `scope`, or `v1.spec.size`."""
    old, new = ([yaml.safe_load((case / name).read_text())] for name in ("a.yaml", "b.yaml"))
    changes = compare_crds(old, new)
    return {item.change.path for item in changes if item.is_breaking(policies)}


def their_paths(case: Path) -> set[str]:
    expected: dict[str, Any] = json.loads((case / "expected.json").read_text())
    paths = {item["name"] for item in expected.get("crdValidation", [])}
    for version in expected.get("sameVersionValidation", []):
        for field in version["propertyComparisons"]:
            path = f"{version['version']}{field['property'].removeprefix('^')}"
            for result in field["comparisonResults"]:
                # Reported for the object there, and for the field here.
                names = re.findall(r"\[(.*)\]", result["errors"][0])
                paths.add(f"{path}.{names[0]}" if result["name"] == "required" else path)
    # A removed field is reported twice, also as `existingFieldRemoval`.
    return paths - {"existingFieldRemoval"}


def test_all_cases_agree_under_all_policies_and_name_the_same_fields() -> None:
    cases = sorted(find_corpus("crdify").iterdir())
    assert len(cases) == 22
    assert {case.name: our_paths(case, ALL) for case in cases} == {
        case.name: their_paths(case) for case in cases
    }


def test_five_cases_need_a_policy() -> None:
    cases = sorted(find_corpus("crdify").iterdir())
    different = {
        case.name for case in cases if bool(our_paths(case, frozenset())) != bool(their_paths(case))
    }
    assert different == DIFFERENT_BY_DEFAULT.keys()
    for name, policy in DIFFERENT_BY_DEFAULT.items():
        case = find_corpus("crdify") / name
        assert our_paths(case, frozenset([policy])) == their_paths(case), name
