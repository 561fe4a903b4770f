"""First Class Disks in the form of the global catalog (/vslm/sdk)."""

from __future__ import annotations

import random
import re
import uuid
from dataclasses import dataclass

from .inventory import ReplayedInventory

_PAGE_SIZE = 1000
_ID = re.compile(rb"<(?:\w+:)?id[^>]*>([0-9a-f-]{36})</")
_CREATED = "2026-10-01T08:00:00.000Z"


@dataclass(frozen=True)
class ReplayedDisk:
    id: str
    name: str
    datastore: str
    size_mb: int


class ReplayedDisks:
    """Disks that are spread over the datastores, sorted by id as the catalog returns them."""

    def __init__(self, inventory: ReplayedInventory, count: int, seed: int = 3) -> None:
        rng = random.Random(seed)
        stores = [store.ref for store in inventory.of_type("Datastore")]
        ids = sorted(str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in range(count))
        self.disks = {
            id: ReplayedDisk(id, f"pvc-{id}", stores[number % len(stores)], 1024 * (1 + number % 9))
            for number, id in enumerate(ids)
        }

    def list_page(self, request: bytes) -> bytes:
        after = re.search(rb"<(?:\w+:)?queryValue[^>]*>([^<]*)</", request)
        last_id = after[1].decode() if after else ""
        remaining = [disk for id, disk in self.disks.items() if id > last_id]
        rows = "".join(map(_render_row, remaining[:_PAGE_SIZE]))
        is_last = "true" if len(remaining) <= _PAGE_SIZE else "false"
        return (
            f"<returnval>{rows}<allRecordsReturned>{is_last}</allRecordsReturned></returnval>"
        ).encode()

    def list_associations(self, request: bytes) -> bytes:
        ids = _ID.findall(request)
        return b"".join(b"<returnval><id><id>%s</id></id></returnval>" % id for id in ids)

    def read(self, request: bytes) -> bytes:
        disk = self.disks[_ID.findall(request)[0].decode()]
        return (
            f"<returnval><config><id><id>{disk.id}</id></id><name>{disk.name}</name>"
            f"<createTime>{_CREATED}</createTime><keepAfterDeleteVm>true</keepAfterDeleteVm>"
            f'<backing xsi:type="BaseConfigInfoDiskFileBackingInfo">'
            f'<datastore type="Datastore">{disk.datastore}</datastore>'
            f"<filePath>[lun] fcd/{disk.id}.vmdk</filePath>"
            f"<provisioningType>thin</provisioningType></backing>"
            f"<capacityInMB>{disk.size_mb}</capacityInMB></config></returnval>"
        ).encode()


def _render_row(disk: ReplayedDisk) -> str:
    return (
        f"<queryResults><id><id>{disk.id}</id></id><name>{disk.name}</name>"
        f"<capacityInMB>{disk.size_mb}</capacityInMB><createTime>{_CREATED}</createTime>"
        f"<datastoreUrl>ds:///vmfs/volumes/{disk.datastore}/</datastoreUrl>"
        f"<diskPath>[lun] fcd/{disk.id}.vmdk</diskPath></queryResults>"
    )
