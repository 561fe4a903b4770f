"""Two roads to the First Class Disks of a vCenter, and what a look along either of them finds.

    GlobalCatalog      the vslm endpoint: all disks of all datastores, 1,000 to a page, straight from vCenter's database
    DatastoreCatalog   the vim API: one list for each datastore; slower, but every vCenter from 6.5 on has it

Both lists leave out how a disk is provisioned and who uses it; only RetrieveVStorageObject tells, one disk to a call. So a look has a
depth: it reads the disks that are new to us (NEW), those whose users may have changed too (USES), or all of them (ALL).

How does GlobalCatalog know whose users changed?  VslmRetrieveVStorageObjectAssociations answers for many disks at once. What it says of a
    disk is only compared with what it said before: the disk itself is then read again. A server without that method: all are read.
What if a disk is deleted between the list and its turn?  It is not there. The rest is kept.
What if one datastore cannot be read?  Its disks are not there, and `unread` says why. Others are not concerned.
What if the server is gone, or the session?  The look fails as a whole.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Protocol

from lxml import etree
from msgspec import Struct, field
from pyVmomi import vim, vslm

from .concurrency import gather_limited
from .faults import (
    Denied,
    NotAuthenticated,
    NotFound,
    Rejected,
    TimedOut,
    Unreachable,
    VCenterError,
    WrongLogin,
)
from .inventory import Inventory
from .model import Datastore, Disk
from .session import Session
from .transport import SoapClient, SoapStub
from .updates import parse_xml

_VSLM_PATH = "/vslm/sdk"
_VSLM_VERSION = "vslm.version.v7_0"
# The most that VslmListVStorageObjectForSpec gives at once.
_DISKS_PER_PAGE = 1000
_ASSOCIATIONS_PER_CALL = 100
_CATALOG_ERRORS = (Unreachable, NotAuthenticated, WrongLogin)
"""But for TimedOut: a datastore that hangs takes only its own disks down."""


class RefreshScope(IntEnum):
    """How much a look reads beyond the list."""

    NEW = 1
    ASSOCIATIONS = 2
    ALL = 3


class DiskListing(Struct):
    """What a look found."""

    disks: dict[str, Disk] = field(default_factory=dict)
    """By id."""
    unreadable_datastores: dict[str, str] = field(default_factory=dict)
    """Why a datastore's disks, or some of them, could not be read; by MoRef."""


class DiskCatalog(Protocol):
    """A road to the disks."""

    async def list_disks(self, known: Mapping[str, Disk], depth: RefreshScope) -> DiskListing:
        """All disks that there are now; those in `known` may be taken from there, as far as the depth allows."""
        ...


class GlobalCatalog:
    """The vslm endpoint."""

    def __init__(
        self,
        soap: SoapClient,
        session: Session,
        inventory: Inventory,
        *,
        page_size: int = _DISKS_PER_PAGE,
    ) -> None:
        self.soap, self.session, self.inventory, self.page_size = (
            soap,
            session,
            inventory,
            page_size,
        )
        self._fingerprints: dict[str, object] = {}
        self._associations: dict[str, tuple[str, ...]] = {}
        self._supports_associations = True

    async def list_disks(self, known: Mapping[str, Disk], depth: RefreshScope) -> DiskListing:
        """List all, then read those that are new or differ."""
        self._supports_associations = self._supports_associations or depth is RefreshScope.ALL
        rows = await self._list_rows()
        users = {
            **self._associations,
            **(
                await self._read_associations([row.id for row in rows])
                if depth >= RefreshScope.ASSOCIATIONS
                else {}
            ),
        }
        marks = {row.id: (row.fingerprint, users.get(row.id)) for row in rows}
        all_of_them = depth is RefreshScope.ALL or (
            depth is RefreshScope.ASSOCIATIONS and not self._supports_associations
        )
        stale = [
            id
            for id in marks
            if all_of_them or id not in known or self._fingerprints.get(id) != marks[id]
        ]
        result = DiskListing(disks={id: known[id] for id in marks.keys() - set(stale)})
        await _read_disks_into(result, stale, self.retrieve, self._find_datastores(rows, known))
        self._fingerprints = {id: mark for id, mark in marks.items() if id in result.disks}
        self._associations = {id: users[id] for id in marks if id in users}
        return _drop_inaccessible(result, self.inventory.datastores)

    async def _list_rows(self) -> list[DiskRow]:
        """The whole list, page by page in the order of ids."""
        rows: list[DiskRow] = []
        while True:
            query = [_next_page_query(rows[-1].id)] if rows else []
            page = decode_page(await self.call("ListVStorageObjectsForSpec", query, self.page_size))
            last = rows[-1].id if rows else ""
            rows += page.rows
            # A server that does not go on would be asked for ever.
            if page.is_last or not page.rows or page.rows[-1].id <= last:
                return rows

    async def _read_associations(self, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """A mark of who uses each disk; empty on a server that does not tell."""
        if not self._supports_associations:
            return {}
        batches = [
            ids[start : start + _ASSOCIATIONS_PER_CALL]
            for start in range(0, len(ids), _ASSOCIATIONS_PER_CALL)
        ]
        try:
            answers = await gather_limited(
                batches,
                lambda batch: self.call(
                    "RetrieveVStorageObjectAssociations", [_create_disk_id(id) for id in batch]
                ),
            )
        except _CATALOG_ERRORS:
            raise
        except VCenterError:
            self._supports_associations = False
            return {}
        return {id: use for answer in answers for id, use in decode_associations(answer).items()}

    async def retrieve(self, id: str) -> bytes:
        """One disk."""
        return await self.call("RetrieveVStorageObject", _create_disk_id(id))

    async def call(self, method: str, *arguments: Any) -> bytes:
        """One call to the manager of all disks. Its endpoint may refuse a session that lives: that is no reason to log in anew."""
        await self.session.login()
        try:
            return await self.send(method, arguments)
        except NotAuthenticated:
            await self.session.ensure_alive()
        try:
            return await self.send(method, arguments)
        except NotAuthenticated as error:
            raise Denied(
                f"{error}: the catalog of disks does not accept this session, which lives"
            ) from error

    async def send(self, method: str, arguments: Sequence[Any]) -> bytes:
        """The same with the session's key as it is now: this endpoint wants it in the SOAP header."""
        stub = SoapStub(self.soap, _VSLM_VERSION, _VSLM_PATH)
        stub.requestContext = {"vcSessionCookie": self.soap.cookie}
        return await _call_raw(
            stub, vslm.vso.VStorageObjectManager("VStorageObjectManager", stub), method, arguments
        )

    def _find_datastores(
        self, rows: Iterable[DiskRow], known: Mapping[str, Disk]
    ) -> dict[str, str]:
        """The MoRef of each disk's datastore, by the URL in its row, else as last known; "" where neither tells."""
        by_url = {
            store.url.rstrip("/"): store.ref
            for store in self.inventory.datastores.values()
            if store.url
        }
        before = {id: disk.datastore for id, disk in known.items()}
        return {
            row.id: by_url.get(row.datastore_url.rstrip("/")) or before.get(row.id, "")
            for row in rows
        }


class DatastoreCatalog:
    """The vim API, datastore by datastore."""

    def __init__(self, soap: SoapClient, session: Session, inventory: Inventory) -> None:
        self.soap, self.session, self.inventory = soap, session, inventory

    async def list_disks(self, known: Mapping[str, Disk], depth: RefreshScope) -> DiskListing:
        """List each datastore, then read what is new; who uses a disk, only reading it tells."""
        stores = [store for store in self.inventory.datastores.values() if store.accessible]
        result = DiskListing()
        homes: dict[str, str] = {}
        for store, ids in zip(stores, await gather_limited(stores, self._list_ids_on), strict=True):
            if isinstance(ids, VCenterError):
                result.unreadable_datastores[store.ref] = str(ids)
            else:
                homes |= dict.fromkeys(ids, store.ref)
        fresh = {
            id
            for id, home in homes.items()
            if depth is RefreshScope.NEW and id in known and known[id].datastore == home
        }
        result.disks = {id: known[id] for id in fresh}
        await _read_disks_into(
            result,
            [id for id in homes if id not in fresh],
            lambda id: self.retrieve(id, homes[id]),
            homes,
        )
        return _drop_inaccessible(result, self.inventory.datastores)

    async def _list_ids_on(self, store: Datastore) -> Sequence[str] | VCenterError:
        """The disks of one datastore, or why they cannot be read."""
        try:
            return decode_ids(await self.call("ListVStorageObject", vim.Datastore(store.ref)))
        except TimedOut as error:
            return error
        except _CATALOG_ERRORS:
            raise
        except NotFound:
            return ()
        except VCenterError as error:
            return error

    async def retrieve(self, id: str, home: str) -> bytes:
        """One disk."""
        return await self.call("RetrieveVStorageObject", _create_disk_id(id), vim.Datastore(home))

    async def call(self, method: str, *arguments: Any) -> bytes:
        """One call to the vim manager of disks, within the session."""
        return await self.session.call(lambda: self.send(method, arguments))

    async def send(self, method: str, arguments: Sequence[Any]) -> bytes:
        """The same; which manager there is may be another after a new login."""
        manager = (await self.soap.get_service_content()).vStorageObjectManager
        if manager is None:
            raise Rejected(
                f"vCenter {self.soap.address.display_name} does not know First Class Disks; they need vSphere 6.5 or newer"
            )
        return await _call_raw(self.soap.stub, manager, method, arguments)


def _create_disk_id(text: str) -> Any:
    """An id as the API wants it."""
    return vim.vslm.ID(id=text)


def _next_page_query(id: str) -> Any:
    """The query for the next page."""
    return vslm.vso.VStorageObjectQuerySpec(
        queryField="id", queryOperator="greaterThan", queryValue=[id]
    )


async def _call_raw(stub: SoapStub, target: Any, method: str, arguments: Sequence[Any]) -> bytes:
    """Call a method by pyVmomi's name for it, and leave the answer as it is."""
    info = target._GetMethodInfo(method)
    body = stub.SerializeRequest(target, info, arguments)
    return await stub.soap.post(body, method=info.wsdlName, path=stub.path, action=stub.versionId)


async def _read_disks_into(
    result: DiskListing,
    ids: Iterable[str],
    retrieve: Callable[[str], Awaitable[bytes]],
    homes: Mapping[str, str],
) -> None:
    """Read disks one by one; one that is gone is left out, one that cannot be read names its datastore."""
    hanging: set[str] = set()

    async def read(id: str) -> None:
        try:
            if homes[id] not in hanging:
                result.disks[id] = decode_disk(await retrieve(id))
        except TimedOut as error:
            hanging.add(homes[id])
            result.unreadable_datastores.setdefault(homes[id], str(error))
        except _CATALOG_ERRORS:
            raise
        except VCenterError as error:
            if not _is_gone(error):
                result.unreadable_datastores.setdefault(homes[id], str(error))

    await gather_limited(list(ids), read)


def _is_gone(error: VCenterError) -> bool:
    """Whether there is no such disk any more; vslm says InvalidArgument for an id that it does not know."""
    return isinstance(error, NotFound) or error.fault == "InvalidArgument"


def _drop_inaccessible(look: DiskListing, stores: Mapping[str, Datastore]) -> DiskListing:
    """Without the disks of datastores that no host can reach: nobody can use them, and what is known of them may be wrong."""
    lost = {ref for ref, store in stores.items() if not store.accessible}
    look.unreadable_datastores |= {
        ref: "no host can reach it" for ref in lost if ref not in look.unreadable_datastores
    }
    look.disks = {id: disk for id, disk in look.disks.items() if disk.datastore not in lost}
    return look


class DiskRow(Struct, frozen=True):
    """A disk in the list of the global catalog."""

    id: str
    datastore_url: str
    fingerprint: tuple[str, ...]
    """All else that says whether the disk differs from what it was; how full it is does not."""


class DiskPage(Struct, frozen=True):
    """Some rows of that list."""

    rows: list[DiskRow]
    is_last: bool


def _find_return_values(body: bytes) -> list[Any]:
    """The `returnval` elements of an answer."""
    try:
        root = parse_xml(body)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise Unreachable(
            f"vCenter's answer about First Class Disks cannot be read ({error}). It is tried again."
        ) from None
    return root.findall("{*}Body/{*}*/{*}returnval")


def decode_page(body: bytes) -> DiskPage:
    """VslmListVStorageObjectForSpec."""
    found = _find_return_values(body)
    rows = [
        _decode_row(element) for result in found for element in result.iterfind("{*}queryResults")
    ]
    return DiskPage(
        rows,
        not rows or all(_find_text(result, "allRecordsReturned") == "true" for result in found),
    )


def _decode_row(element: Any) -> DiskRow:
    """One row."""
    url = _find_text(element, "datastoreUrl")
    said = tuple(
        _find_text(element, name) for name in ("name", "capacityInMB", "createTime", "diskPath")
    )
    return DiskRow(_find_text(element, "id/{*}id"), url, (url, *said))


def decode_associations(body: bytes) -> dict[str, tuple[str, ...]]:
    """VslmRetrieveVStorageObjectAssociations: for each disk who uses it, in a form that can be compared."""
    return {
        _find_text(element, "id/{*}id"): tuple(
            sorted(
                f"{_find_text(use, 'vmId')}/{_find_text(use, 'diskKey')}"
                for use in element.iterfind("{*}vmDiskAssociation")
            )
        )
        for element in _find_return_values(body)
    }


def decode_ids(body: bytes) -> list[str]:
    """ListVStorageObject."""
    return [_find_text(element, "id") for element in _find_return_values(body)]


def decode_disk(body: bytes) -> Disk:
    """RetrieveVStorageObject of either API."""
    for element in _find_return_values(body):
        if (config := element.find("{*}config")) is not None:
            return _decode_disk_config(config)
    raise Rejected("vCenter's answer about a First Class Disk has no disk in it")


def _decode_disk_config(config: Any) -> Disk:
    """VStorageObjectConfigInfo as our value."""
    return Disk(
        id=_find_text(config, "id/{*}id"),
        name=_find_text(config, "name"),
        datastore=_find_text(config, "backing/{*}datastore"),
        size_mb=_parse_number(_find_text(config, "capacityInMB")),
        file_path=_find_text(config, "backing/{*}filePath"),
        provisioning=_find_text(config, "backing/{*}provisioningType"),
        created_at=parse_time(_find_text(config, "createTime")),
        consumers=tuple(
            _find_text(consumer, "id") for consumer in config.iterfind("{*}consumerId")
        ),
    )


def _find_text(element: Any, path: str) -> str:
    """What stands at a path below an element; "" where there is nothing."""
    return (element.findtext("{*}" + path) or "").strip()


def _parse_number(said: str) -> int | None:
    """A number of the wire, None where there is none."""
    return int(said) if said.isdecimal() else None


def parse_time(said: str) -> datetime | None:
    """A time of the wire, which may have more digits than Python has microseconds; None for none."""
    try:
        return datetime.fromisoformat(said).astimezone(UTC) if said else None
    except ValueError:
        return None
