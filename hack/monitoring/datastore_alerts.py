"""Alerts about datastores and the disks on them. They need -inventory-metrics."""

from __future__ import annotations

from .model import Alert, Runbook, Scenario

_DATASTORE = 'vcenter="vc-1",datastore="nfs-1",datastore_id="datastore-3"'
_DATASTORE_LABELS = {"vcenter": "vc-1", "datastore": "nfs-1", "datastore_id": "datastore-3"}

_SHARE_FREE = """\
max by (vcenter, datastore, datastore_id)
  (vsphere_datastore_free_bytes / vsphere_datastore_capacity_bytes)"""
DATASTORE_FILLING = Alert(
    name="VSphereDatastoreFilling",
    # A series has the labels of its manager and ends with it. The forecast is made from the series
    # of all managers, so that a new leader continues that of the last one.
    expr=f"""\
{_SHARE_FREE} < 0.1
or {_SHARE_FREE} < 0.4
  and predict_linear(
    (max by (vcenter, datastore, datastore_id) (vsphere_datastore_free_bytes))[6h:5m],
    24 * 3600
  ) < 0""",
    for_minutes=30,
    severity="warning",
    summary="Datastore {{ $labels.datastore }} is filling up.",
    description="{{ $value | humanizePercentage }} of datastore {{ $labels.datastore }} in vCenter "
    "{{ $labels.vcenter }} is free: less than 10 %, or it will be full within a day.",
    runbook=Runbook(
        meaning="Less than 10 % of the datastore is free, or less than 40 % and at the rate of the "
        "last 6 hours it will be full within a day.",
        impact="When it is full, VMs with thin disks on it are suspended, clones of VmGroups fail, "
        "and volumes cannot be created.",
        diagnosis=(
            "List the volumes on the datastore:",
            "$ kubectl get fcdinfoes -A -o wide",
            "Check orphaned disks and the space that thin disks can still take on the dashboard "
            "Hosts and nodes.",
            "Check in vCenter for snapshots and ISO files on the datastore.",
        ),
        fix=(
            "Delete snapshots and disks that are not needed, or move VMs to another datastore.",
            "Extend the datastore.",
        ),
    ),
    scenarios=(
        Scenario(
            {
                f"vsphere_datastore_capacity_bytes{{{_DATASTORE}}}": "1000x120",
                f"vsphere_datastore_free_bytes{{{_DATASTORE}}}": "80x60 700x60",
            },
            fires_at_minute=40,
            resolves_at_minute=64,
            labels=_DATASTORE_LABELS,
            value="8%",
        ),
        # 35 % free, and it loses 0.5 % an hour: not full within a day. Then 5 % an hour.
        Scenario(
            {
                f"vsphere_datastore_capacity_bytes{{{_DATASTORE}}}": "120000x900",
                f"vsphere_datastore_free_bytes{{{_DATASTORE}}}": "42000-10x420 37800-60x200 "
                "90000x200",
            },
            fires_at_minute=600,
            resolves_at_minute=625,
            labels=_DATASTORE_LABELS,
            value="22.55%",
        ),
        # A failover while the datastore fills: the new leader has only a few samples, and in the
        # first of them the space grows.
        Scenario(
            {
                f'vsphere_datastore_capacity_bytes{{{_DATASTORE},instance="a"}}': "120000x500",
                f'vsphere_datastore_capacity_bytes{{{_DATASTORE},instance="b"}}': (
                    "_x502 120000x300"
                ),
                f'vsphere_datastore_free_bytes{{{_DATASTORE},instance="a"}}': "46000-50x500",
                f'vsphere_datastore_free_bytes{{{_DATASTORE},instance="b"}}': (
                    "_x502 20900+20x20 20500-50x40 90000x200"
                ),
            },
            fires_at_minute=515,
            resolves_at_minute=570,
            labels=_DATASTORE_LABELS,
            value="17.63%",
        ),
        # A failover while clones are made for 40 minutes: the space shrinks fast since the new
        # leader has served metrics, but not in the last 6 hours.
        Scenario(
            {
                f'vsphere_datastore_capacity_bytes{{{_DATASTORE},instance="a"}}': "120000x500",
                f'vsphere_datastore_capacity_bytes{{{_DATASTORE},instance="b"}}': (
                    "_x502 120000x200"
                ),
                f'vsphere_datastore_free_bytes{{{_DATASTORE},instance="a"}}': "42000x500",
                f'vsphere_datastore_free_bytes{{{_DATASTORE},instance="b"}}': (
                    "_x502 42000-60x40 39600x160"
                ),
            },
            fires_at_minute=None,
            resolves_at_minute=660,
        ),
    ),
)

DISKS_ORPHANED = Alert(
    name="VSphereDisksOrphaned",
    # `for` would begin again at each gap of the series, as at a restart of the manager. Instead,
    # there were such disks a day ago, and every sample since then has some.
    expr="""\
max by (vcenter, datastore, datastore_id)
  (last_over_time(vsphere_datastore_orphaned_disks[1h]))
and min by (vcenter, datastore, datastore_id)
  (min_over_time(vsphere_datastore_orphaned_disks[1d])) > 0
and max by (vcenter, datastore, datastore_id)
  (last_over_time(vsphere_datastore_orphaned_disks[12h] offset 1d)) > 0""",
    for_minutes=0,
    severity="info",
    summary="Datastore {{ $labels.datastore }} has disks that no volume uses.",
    description="{{ $value }} First Class Disks on datastore {{ $labels.datastore }} belong to no "
    "PersistentVolume of this cluster, and no VM uses them.",
    runbook=Runbook(
        meaning="For a day there have been First Class Disks without a PersistentVolume in this "
        "cluster and without a VM. A volume that was deleted with the policy Retain leaves one, "
        "and so does a cluster that was deleted without its volumes.",
        impact="They take space. If another cluster uses the same vCenter, its unused volumes "
        "count too, and the alert is expected: silence it for that datastore.",
        diagnosis=(
            "List the disks. The alert is about those in state orphaned; foreign ones have a VM:",
            "$ kubectl vsphere orphans",
            "List the disks that the volumes of this cluster name:",
            "$ kubectl get pv -o custom-columns=NAME:.metadata.name,DISK:.spec.csi.volumeHandle",
            "Compare them with Container Volumes of the datastore in vCenter, under Monitor > "
            "Cloud Native Storage.",
        ),
        fix=(
            "Make sure that no other cluster uses the disk, then delete it in vCenter under "
            "Container Volumes. vsphere-operators never deletes First Class Disks.",
        ),
    ),
    scenarios=(
        Scenario(
            {f"vsphere_datastore_orphaned_disks{{{_DATASTORE}}}": "3x1500 0x60"},
            fires_at_minute=1450,
            resolves_at_minute=1510,
            labels=_DATASTORE_LABELS,
            value="3",
        ),
        # A failover after 10 hours with a gap of 20 minutes, and a restart at the end.
        Scenario(
            {
                f'vsphere_datastore_orphaned_disks{{{_DATASTORE},instance="a"}}': "3x600",
                f'vsphere_datastore_orphaned_disks{{{_DATASTORE},instance="b"}}': (
                    "_x620 3x820 _x20 0x60"
                ),
            },
            fires_at_minute=1455,
            resolves_at_minute=1470,
            labels=_DATASTORE_LABELS,
            value="3",
        ),
        # The disks are deleted within a day, and others follow.
        Scenario(
            {f"vsphere_datastore_orphaned_disks{{{_DATASTORE}}}": "3x1000 0x2 2x1000"},
            fires_at_minute=None,
            resolves_at_minute=1990,
        ),
    ),
)

ALERTS = (DATASTORE_FILLING, DISKS_ORPHANED)
