"""Tags of hosts over REST (/api): three tags in two categories."""

from __future__ import annotations

import json
from typing import Any

from .inventory import ReplayedInventory

_CATEGORIES = {"urn:c:1": "zone", "urn:c:2": "tier"}
_TAGS = {
    "urn:t:1": ("a", "urn:c:1"),
    "urn:t:2": ("b", "urn:c:1"),
    "urn:t:3": ("gold", "urn:c:2"),
}


class ReplayedTags:
    def __init__(self, inventory: ReplayedInventory) -> None:
        self._tags_by_host = {
            host.ref: [f"urn:t:{1 + number % 2}", *(["urn:t:3"] if number % 5 == 0 else [])]
            for number, host in enumerate(inventory.of_type("HostSystem"))
        }

    def respond(self, verb: str, path: str, body: bytes) -> tuple[int, Any]:
        """Status and JSON; 404 for a path that does not exist."""
        if path == "/api/session":
            return (201, "session") if verb == "POST" else (204, None)
        if verb == "POST" and path.startswith("/api/cis/tagging/tag-association"):
            refs = [item["id"] for item in json.loads(body)["object_ids"]]
            return 200, [
                {
                    "object_id": {"id": ref, "type": "HostSystem"},
                    "tag_ids": self._tags_by_host.get(ref, []),
                }
                for ref in refs
            ]
        if path.startswith("/api/cis/tagging/tag/"):
            name, category = _TAGS[path.rpartition("/")[2]]
            return 200, {"name": name, "category_id": category}
        if path.startswith("/api/cis/tagging/category/"):
            return 200, {"name": _CATEGORIES[path.rpartition("/")[2]]}
        return 404, None
