"""Checks by the audit log whether each status was written by the holder of its shard's Lease.

The revisions of etcd put all writes of Leases and of statuses into one order. A status that was
written at a revision at which another replica, or no replica, held the Lease of its shard is a
violation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kubewright.shard_ranges import shard_of_value


def write_audit_flags(folder: Path) -> list[str]:
    """Flags for an audit log with the bodies of all writes to Leases and MyCustomResources."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {
                "level": "RequestResponse",
                "verbs": ["create", "patch", "update"],
                "resources": [
                    {"group": "coordination.k8s.io", "resources": ["leases"]},
                    {
                        "group": "poc.test.domain",
                        "resources": ["mycustomresources", "mycustomresources/status"],
                    },
                ],
            },
            {"level": "None"},
        ],
    }
    (folder / "policy.json").write_text(json.dumps(policy))
    return [
        f"--audit-policy-file={folder / 'policy.json'}",
        f"--audit-log-path={folder / 'audit.jsonl'}",
        "--audit-log-maxsize=100000",
    ]


def check_events(
    events: Iterable[dict[str, Any]], shards: int, names_by_agent: dict[str, str]
) -> tuple[list[str], int, int]:
    """The status writes at a revision at which their writer did not hold the Lease of the shard.

    Returns the violations, and the numbers of checked writes and of changes of holders.
    """
    writes: dict[int, tuple[str, str, str]] = {}
    lease_changes: dict[int, list[tuple[int, str]]] = {shard: [] for shard in range(shards)}
    for event in events:
        obj = event.get("responseObject") or {}
        reference = event.get("objectRef", {})
        if event.get("responseStatus", {}).get("code", 500) >= 300:
            continue
        agent, metadata = event["userAgent"], obj.get("metadata", {})
        revision = int(metadata.get("resourceVersion", 0))
        name = metadata.get("name", "")
        if reference["resource"] == "leases" and "-shard-" in name:
            holder = obj["spec"].get("holderIdentity", "")
            shard = int(name.rpartition("-")[2])
            lease_changes[shard].append((revision, agent if holder else ""))
        elif reference.get("subresource") == "status" and agent in names_by_agent:
            # A patch that changes nothing has the revision of the last write.
            writes.setdefault(revision, (metadata["uid"], agent, name))
    for changes in lease_changes.values():
        changes.sort()
    violations = []
    for revision, (uid, agent, name) in writes.items():
        shard = shard_of_value(uid, shards)
        holder = ""
        for changed_at, changed_to in lease_changes[shard]:
            if changed_at > revision:
                break
            holder = changed_to
        if holder != agent:
            violations.append(
                f"revision {revision}: {names_by_agent[agent]} wrote {name} of shard {shard}, "
                f"which {names_by_agent.get(holder, 'no replica')} held"
            )
    return violations, len(writes), sum(map(len, lease_changes.values()))
