"""Two APIs that list the First Class Disks of a vCenter.

    GlobalCatalog      the vslm endpoint: all disks of all datastores, 1,000 per page
    DatastoreCatalog   the vim API: one list per datastore; slower, but in every vCenter from 6.5 on

Both lists omit how a disk is provisioned and attached. Only RetrieveVStorageObject returns
that, one disk per call. So a listing has a scope: it reads the new disks (NEW), also those with
changed attachments (ATTACHMENTS), or all (ALL).

How does GlobalCatalog notice a changed attachment?  VslmRetrieveVStorageObjectAssociations covers
    many disks per call. Its result is only compared with the previous one; the disk itself is then
    read again. If the server lacks that method, all disks are read.
What if one datastore cannot be read?  Its disks are left out, and `unreadable_datastores` has the
    cause. Other datastores are not affected.
What if one datastore hangs?  After TimedOut its disks stay as they were last read: no response
    shows that they are deleted. It is in `hanging_datastores` as well.
What if the server or the session is gone?  The listing fails as a whole (UNAVAILABLE_ERRORS). If
    the lists of all datastores hang, it is vCenter, and the listing fails, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol

from msgspec import Struct, field

from .decode_errors import ReportUndecodable
from .disk_decoding import DiskRow, decode_attachments, decode_disk, decode_ids, decode_page
from .faults import (
    UNAVAILABLE_ERRORS,
    Denied,
    NotAuthenticated,
    NotFound,
    Rejected,
    TimedOut,
    VCenterError,
)
from .inventory import Inventory
from .model import Datastore, Disk
from .parallel_calls import gather_limited
from .session import Session
from .soap_request import VIM, ApiVersion, Argument, DataObject, encode_session_header
from .transport import SoapClient
from .updates import Ref

_VSLM_PATH = "/vslm/sdk"
_VSLM = ApiVersion("urn:vslm", "7.0.0.0")
_VSLM_MANAGER = Ref("VslmVStorageObjectManager", "VStorageObjectManager")
# The maximum of VslmListVStorageObjectForSpec.
_DISKS_PER_PAGE = 1000
_ATTACHMENTS_PER_CALL = 100


class RefreshScope(IntEnum):
    """How much a listing reads in addition to the list itself."""

    NEW = 1
    ATTACHMENTS = 2
    ALL = 3


class DiskListing(Struct):
    disks: dict[str, Disk] = field(default_factory=dict)
    # Why some disks of a datastore could not be read, by MoRef.
    unreadable_datastores: dict[str, str] = field(default_factory=dict)
    # Those of them that did not respond: `disks` has their last known disks.
    hanging_datastores: set[str] = field(default_factory=set)


class DiskCatalog(Protocol):
    async def list_disks(self, known_disks: Mapping[str, Disk], scope: RefreshScope) -> DiskListing:
        """All disks; those in `known_disks` are reused as far as the scope allows."""
        ...


class GlobalCatalog:
    def __init__(
        self,
        soap: SoapClient,
        session: Session,
        inventory: Inventory,
        *,
        page_size: int = _DISKS_PER_PAGE,
    ) -> None:
        self._soap, self._session, self._inventory = soap, session, inventory
        self._report, self.page_size = soap.decode_errors.report, page_size
        self._fingerprints: dict[str, object] = {}
        self._attachments: dict[str, tuple[str, ...]] = {}
        self._supports_attachments = True

    async def list_disks(self, known_disks: Mapping[str, Disk], scope: RefreshScope) -> DiskListing:
        self._supports_attachments = self._supports_attachments or scope is RefreshScope.ALL
        rows = await self._list_rows()
        attachments = self._attachments
        if scope >= RefreshScope.ATTACHMENTS:
            attachments = attachments | await self._read_attachments([row.id for row in rows])
        fingerprints = {row.id: (row.fingerprint, attachments.get(row.id)) for row in rows}
        reads_all = scope is RefreshScope.ALL or (
            scope is RefreshScope.ATTACHMENTS and not self._supports_attachments
        )
        stale = [
            id
            for id, fingerprint in fingerprints.items()
            if reads_all or id not in known_disks or self._fingerprints.get(id) != fingerprint
        ]
        listing = DiskListing(
            disks={id: known_disks[id] for id in fingerprints.keys() - set(stale)}
        )
        datastores = self._find_datastores(rows, known_disks)
        unread = await _read_disks_into(
            listing,
            stale,
            lambda id: self._call("VslmRetrieveVStorageObject", {"id": _vslm_id(id)}),
            datastores,
            known_disks,
            self._report,
        )
        # Without a fingerprint, the next listing reads the disk again.
        self._fingerprints = {
            id: fingerprint
            for id, fingerprint in fingerprints.items()
            if id in listing.disks and id not in unread
        }
        self._attachments = {id: attachments[id] for id in fingerprints if id in attachments}
        return _drop_inaccessible(listing, self._inventory.datastores)

    async def _list_rows(self) -> list[DiskRow]:
        """The whole list, page by page in the order of ids."""
        rows: list[DiskRow] = []
        while True:
            last_id = rows[-1].id if rows else ""
            query = (
                [
                    DataObject(
                        {
                            "queryField": "id",
                            "queryOperator": "greaterThan",
                            "queryValue": [last_id],
                        }
                    )
                ]
                if rows
                else []
            )
            page = decode_page(
                await self._call(
                    "VslmListVStorageObjectForSpec", {"query": query, "maxResult": self.page_size}
                ),
                self._report,
            )
            rows += page.rows
            # A server that ignores the query would return the same page for ever.
            if page.is_last or not page.rows or page.rows[-1].id <= last_id:
                return rows

    async def _read_attachments(self, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The VMs of each disk in a comparable form; empty if the server lacks the method."""
        if not self._supports_attachments:
            return {}
        batches = [
            ids[start : start + _ATTACHMENTS_PER_CALL]
            for start in range(0, len(ids), _ATTACHMENTS_PER_CALL)
        ]
        try:
            responses = await gather_limited(
                batches,
                lambda batch: self._call(
                    "VslmRetrieveVStorageObjectAssociations",
                    {"ids": [_vslm_id(id) for id in batch]},
                ),
            )
        except UNAVAILABLE_ERRORS:
            raise
        except VCenterError:
            self._supports_attachments = False
            return {}
        return {
            id: vms
            for response in responses
            for id, vms in decode_attachments(response, self._report).items()
        }

    async def _call(self, method: str, arguments: Mapping[str, Argument]) -> bytes:
        # vslm can reject a session that vim still accepts, so test it before logging in again.
        await self._session.login()
        try:
            return await self._send(method, arguments)
        except NotAuthenticated:
            await self._session.ensure_alive()
        try:
            return await self._send(method, arguments)
        except NotAuthenticated as error:
            raise Denied(
                f"{error}: the disk catalog rejects this session, which is alive"
            ) from error

    async def _send(self, method: str, arguments: Mapping[str, Argument]) -> bytes:
        return await self._soap.invoke(
            _VSLM_MANAGER,
            method,
            arguments,
            api=_VSLM,
            path=_VSLM_PATH,
            # This endpoint reads the session key from the SOAP header, not from the cookie.
            header=encode_session_header(self._soap.cookie, _VSLM),
        )

    def _find_datastores(
        self, rows: Iterable[DiskRow], known_disks: Mapping[str, Disk]
    ) -> dict[str, str]:
        """The MoRef of each disk's datastore: by the URL in its row, else the last known one."""
        refs_by_url = {
            datastore.url.rstrip("/"): datastore.ref
            for datastore in self._inventory.datastores.values()
            if datastore.url
        }
        known_refs = {id: disk.datastore for id, disk in known_disks.items()}
        return {
            row.id: refs_by_url.get(row.datastore_url.rstrip("/")) or known_refs.get(row.id, "")
            for row in rows
        }


class DatastoreCatalog:
    def __init__(self, soap: SoapClient, session: Session, inventory: Inventory) -> None:
        self._soap, self._session, self._inventory = soap, session, inventory

    async def list_disks(self, known_disks: Mapping[str, Disk], scope: RefreshScope) -> DiskListing:
        datastores = [
            store for store in self._inventory.datastores.values() if store.accessible is not False
        ]
        listing = DiskListing()
        datastore_by_id: dict[str, str] = {}
        results = await gather_limited(datastores, self._list_ids_on)
        timeouts = [result for result in results if isinstance(result, TimedOut)]
        if timeouts and len(timeouts) == len(results):
            # vCenter itself hangs: no disk is known to be deleted.
            raise timeouts[0]
        for datastore, ids in zip(datastores, results, strict=True):
            if isinstance(ids, TimedOut):
                _add_hanging(listing, datastore.ref, ids)
            elif isinstance(ids, VCenterError):
                listing.unreadable_datastores[datastore.ref] = str(ids)
            else:
                datastore_by_id |= dict.fromkeys(ids, datastore.ref)
        # This API has no method for attachments: only a read of the disk returns them.
        fresh = {
            id
            for id, ref in datastore_by_id.items()
            if scope is RefreshScope.NEW and id in known_disks and known_disks[id].datastore == ref
        }
        listing.disks = {
            id: disk
            for id, disk in known_disks.items()
            if id in fresh
            or (disk.datastore in listing.hanging_datastores and id not in datastore_by_id)
        }
        await _read_disks_into(
            listing,
            [id for id in datastore_by_id if id not in fresh],
            lambda id: self._call(
                "RetrieveVStorageObject",
                {
                    "id": DataObject({"id": id}),
                    "datastore": Ref("Datastore", datastore_by_id[id]),
                },
            ),
            datastore_by_id,
            known_disks,
            self._soap.decode_errors.report,
        )
        return _drop_inaccessible(listing, self._inventory.datastores)

    async def _list_ids_on(self, datastore: Datastore) -> Sequence[str] | VCenterError:
        """The disks of one datastore, or why they cannot be read."""
        try:
            body = await self._call(
                "ListVStorageObject", {"datastore": Ref("Datastore", datastore.ref)}
            )
            return decode_ids(body, self._soap.decode_errors.report)
        except TimedOut as error:
            return error
        except UNAVAILABLE_ERRORS:
            raise
        except NotFound:
            return ()
        except VCenterError as error:
            return error

    async def _call(self, method: str, arguments: Mapping[str, Argument]) -> bytes:
        return await self._session.call(lambda: self._send(method, arguments))

    async def _send(self, method: str, arguments: Mapping[str, Argument]) -> bytes:
        # The reference of the manager may differ after a new login.
        manager = (await self._soap.get_service_content()).vStorageObjectManager
        if manager is None:
            raise Rejected(
                f"vCenter {self._soap.address.display_name} does not support First Class Disks; "
                "they need vSphere 6.5 or newer"
            )
        return await self._soap.invoke(manager, method, arguments)


def _vslm_id(id: str) -> DataObject:
    return DataObject({"id": id}, namespace=VIM.namespace)


def _add_hanging(listing: DiskListing, datastore: str, cause: TimedOut) -> None:
    listing.hanging_datastores.add(datastore)
    listing.unreadable_datastores.setdefault(datastore, str(cause))


async def _read_disks_into(
    listing: DiskListing,
    ids: Iterable[str],
    retrieve: Callable[[str], Awaitable[bytes]],
    datastore_by_id: Mapping[str, str],
    known_disks: Mapping[str, Disk],
    report: ReportUndecodable,
) -> set[str]:
    """Read disks one by one; returns those that stay as known, because their datastore hangs."""
    unread: set[str] = set()

    def keep(id: str) -> None:
        if id in known_disks:
            listing.disks[id] = known_disks[id]
            unread.add(id)

    async def read(id: str) -> None:
        datastore = datastore_by_id[id]
        try:
            if datastore in listing.hanging_datastores:
                keep(id)
            else:
                listing.disks[id] = decode_disk(await retrieve(id), report)
        except TimedOut as error:
            _add_hanging(listing, datastore, error)
            keep(id)
        except UNAVAILABLE_ERRORS:
            raise
        except VCenterError as error:
            # vslm returns InvalidArgument for the id of a deleted disk.
            if not isinstance(error, NotFound) and error.fault != "InvalidArgument":
                listing.unreadable_datastores.setdefault(datastore, str(error))

    await gather_limited(list(ids), read)
    return unread


def _drop_inaccessible(listing: DiskListing, datastores: Mapping[str, Datastore]) -> DiskListing:
    """Drop disks that no host can reach: they are unusable, and what is known may be outdated."""
    inaccessible = {ref for ref, datastore in datastores.items() if datastore.accessible is False}
    for ref in inaccessible:
        listing.unreadable_datastores.setdefault(ref, "no host can access it")
    listing.disks = {
        id: disk for id, disk in listing.disks.items() if disk.datastore not in inaccessible
    }
    return listing
