"""What each class of change breaks, for which users, and what to do instead.

A change without a rule is safe. A rule with a policy is a matter of opinion: such a change breaks
no manifest and no script that reads the field, but may surprise programs. It counts as breaking
only if the user selects the policy.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Rule:
    effect: str
    advice: str
    policy: str = ""


class Change(NamedTuple):
    """One difference; `rule` is None if it is safe under every policy."""

    path: str
    message: str
    rule: Rule | None = None

    def is_breaking(self, policies: Collection[str] = ()) -> bool:
        return self.rule is not None and (not self.rule.policy or self.rule.policy in policies)


KIND_REMOVED = Rule(
    "Manifests of the kind are rejected by new installations, and objects in existing ones are no "
    "longer reconciled.",
    "Keep the kind until its users have deleted their objects.",
)
IMMUTABLE = Rule(
    "The API server rejects this change of an installed CRD.",
    "Keep the old value, or create a new kind.",
)
NAME_REMOVED = Rule(
    "kubectl commands, scripts and generated clients with the old name fail.",
    "Keep the old name. A kind can have several short names.",
)
CONVERSION_REMOVED = Rule(
    "Objects are no longer converted between versions: clients of the other version read fields "
    "that are missing or wrong.",
    "Keep the conversion while more than one version is served.",
)
VERSION_REMOVED = Rule(
    "Manifests and clients of this version fail.",
    "First deprecate the version (`deprecated=`), then stop serving it (`served=False`). Remove it "
    "in a later release, when status.storedVersions of installed CRDs does not list it.",
)
STORED_VERSION_REMOVED = Rule(
    "Objects may be stored in this version. The API server rejects the CRD as long as "
    "status.storedVersions of the installed one lists it.",
    "Keep the version with `served=False`. Write every object again in the new storage version, "
    "remove the old one from status.storedVersions, and only then remove it here.",
)
VERSION_NOT_SERVED = Rule(
    "Manifests and clients of this version fail.",
    "First deprecate the version (`deprecated=`), so that kubectl warns its users.",
)
SUBRESOURCE_REMOVED = Rule(
    "Clients of the subresource fail: `kubectl scale` and autoscalers, or controllers that write "
    "the status.",
    "Keep the subresource.",
)
STATUS_ADDED = Rule(
    "The API server ignores `status` in requests for the object itself: clients that write it "
    "there lose their changes.",
    "Move all writers to the status subresource first.",
)
SCALE_CHANGED = Rule(
    "`kubectl scale` and autoscalers read or write another field.",
    "Keep the old field, and copy its value.",
)
COLUMN_CHANGED = Rule(
    "People and scripts that read the output of `kubectl get` miss the column.",
    "Keep the column, and add a new one.",
)
SELECTABLE_FIELD_REMOVED = Rule(
    "Requests with a field selector on this field fail.",
    "Keep the field selectable.",
)
FIELD_REMOVED = Rule(
    "The API server drops the value from manifests that set the field, and scripts that read it "
    "find nothing.",
    "Keep the field and describe it as deprecated, or remove it in a new version of the kind.",
)
TYPE_CHANGED = Rule(
    "Manifests with a value of the old type are rejected, stored objects cannot be updated, and "
    "programs that read the field fail.",
    "Keep the field, and add a new one of the other type.",
)
NEWLY_REQUIRED = Rule(
    "Manifests without the field are rejected, and stored objects without it cannot be updated.",
    "Give the field a default, or keep it optional and report a missing value in a condition.",
)
TIGHTER = Rule(
    "Manifests with values that were valid are rejected.",
    "Keep accepting the old values and report unsuitable ones in a condition, or add a version.",
)
MAYBE_TIGHTER = Rule(
    "Manifests with values that were valid may be rejected: whether the new rule allows all of "
    "them is not computed.",
    "If it allows every old value, accept the change with --allow-breaking.",
)
DEFAULT_CHANGED = Rule(
    "Objects that leave the field out get another meaning, also stored ones: the API server fills "
    "in defaults when it reads them.",
    "Keep the default, and select the new behaviour with another field.",
)
PRUNED = Rule(
    "The API server drops fields of stored objects and manifests that the schema does not declare.",
    "Declare the fields that users have, or keep unknown fields.",
)
MERGE_CHANGED = Rule(
    "Server-side apply merges the list or map of existing objects in another way: items of other "
    "field managers may be lost.",
    "Keep the list or map type, or add a new field.",
)
UNKNOWN = Rule(
    "The effect of this change is not known.",
    "Check it by hand, and accept it with --allow-breaking.",
)

DESCRIPTION_CHANGED = Rule(
    "The field may now mean something else to readers of its description.",
    "If the meaning changed, add a new field.",
    "description-changed",
)
ENUM_VALUE_ADDED = Rule(
    "Programs that handle every known value read one that they do not know.",
    "Announce the value, or return it only to clients of a new version.",
    "enum-value-added",
)
NULL_ALLOWED = Rule(
    "Programs that read the field may find null.",
    "Leave the field out instead of setting it to null.",
    "null-allowed",
)
PATTERN_REMOVED = Rule(
    "Programs that parse the value may find another format.",
    "Replace the pattern by one that also allows the new values.",
    "pattern-removed",
)
REQUIRED_WITH_DEFAULT = Rule(
    "Manifests still apply, because the API server fills in the default. Types that are generated "
    "from the CRD require the field, and a later release cannot remove the default.",
    "Keep the field optional: the default is set in either case.",
    "required-with-default",
)

_ALL_POLICIES = "all"
POLICIES = {
    DESCRIPTION_CHANGED.policy: "a changed description",
    ENUM_VALUE_ADDED.policy: "a new value of an enum",
    NULL_ALLOWED.policy: "null newly allowed",
    PATTERN_REMOVED.policy: "a removed pattern",
    REQUIRED_WITH_DEFAULT.policy: "a newly required field that has a default",
    _ALL_POLICIES: "all of these; then the verdicts are those of crdify",
}


def expand_policies(names: Collection[str]) -> frozenset[str]:
    return frozenset(POLICIES if _ALL_POLICIES in names else names)
