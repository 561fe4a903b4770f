"""Alerts about the manager itself, and its connection to Kubernetes."""

from __future__ import annotations

from .model import JOB_SELECTOR, Alert, Runbook, Scenario

_LOGS = "$ kubectl -n vsphere-operators-system logs deploy/vsphere-operators-controller-manager"
_DOCTOR = (
    "$ kubectl -n vsphere-operators-system exec deploy/vsphere-operators-controller-manager -- "
    "manager doctor"
)
_QUEUE = f'{{{JOB_SELECTOR},instance="a",name="hostinfo",controller="hostinfo"}}'
_VMGROUP = f'{{{JOB_SELECTOR},controller="vmgroup"}}'

MANAGER_DOWN = Alert(
    name="VSphereOperatorsDown",
    expr=f"absent(up{{{JOB_SELECTOR}}} == 1)",
    for_minutes=5,
    severity="critical",
    summary="No manager of vsphere-operators can be scraped.",
    description="Prometheus has not reached any manager for 5 minutes.",
    runbook=Runbook(
        meaning="No Pod of the manager answers a scrape of /metrics.",
        impact="If no manager runs, statuses stay as they are and become wrong, and VmGroups are "
        "neither scaled nor repaired. VMs that exist keep running.",
        diagnosis=(
            "List the Pods of the manager and their restarts:",
            "$ kubectl -n vsphere-operators-system get pods -o wide",
            "If the list is empty, find out why no Pod is created:",
            "$ kubectl -n vsphere-operators-system describe deploy",
            "If it restarts, read why the last one ended:",
            f"{_LOGS} --previous --tail=20",
            "If it is ready, only the scrape fails: check the target in Prometheus, the binding of "
            "the role vsphere-operators-metrics-reader and the NetworkPolicy.",
        ),
        fix=(
            "Fix what the last log line of the manager names; it ends with what to do.",
            "If the Pod was killed for its memory, raise the limit in the Deployment.",
            "If only the scrape fails, give Prometheus the role "
            "`vsphere-operators-metrics-reader`, see [monitor](../howto/monitor.md).",
        ),
    ),
    scenarios=(
        Scenario(
            {f'up{{{JOB_SELECTOR},instance="a"}}': "1x5 0x10 1x20"},
            fires_at_minute=12,
            resolves_at_minute=17,
        ),
    ),
)

NO_LEADER = Alert(
    name="VSphereOperatorsNoLeader",
    expr=f"sum by (name) (leader_election_master_status{{{JOB_SELECTOR}}}) == 0",
    for_minutes=2,
    severity="critical",
    summary="No manager holds the lease {{ $labels.name }}.",
    description="Managers run, but none of them has led for 2 minutes.",
    runbook=Runbook(
        meaning="Every running manager is a standby. A takeover normally takes 15 seconds.",
        impact="No object is reconciled and no status is written.",
        diagnosis=(
            "Read the holder and the time of the last renewal:",
            "$ kubectl -n vsphere-operators-system get lease vsphere-operators-leader -o yaml",
            "Read why the managers cannot take it:",
            f"{_LOGS} --all-pods --tail=100",
            "Check that the service account may update the lease:",
            "$ kubectl auth can-i update leases -n vsphere-operators-system "
            "--as=system:serviceaccount:vsphere-operators-system:controller-manager",
        ),
        fix=(
            "If the API server is slow or unavailable, fix that first: the manager takes the lease "
            "without further action.",
            "If the permission is missing, apply the roles again: "
            "`kubectl apply --server-side -k config/rbac`.",
        ),
    ),
    scenarios=(
        Scenario(
            {
                f'leader_election_master_status{{{JOB_SELECTOR},instance="a",name="ns/lease"}}': (
                    "1x5 0x30"
                ),
                f'leader_election_master_status{{{JOB_SELECTOR},instance="b",name="ns/lease"}}': (
                    "0x10 1x30"
                ),
            },
            fires_at_minute=9,
            resolves_at_minute=12,
            labels={"name": "ns/lease"},
        ),
    ),
)

WATCH_SILENT = Alert(
    name="VSphereOperatorsWatchSilent",
    expr=f"max by (kind) (kubewright_watch_silent{{{JOB_SELECTOR}}}) == 1",
    for_minutes=10,
    severity="warning",
    summary="The watch of {{ $labels.kind }} receives nothing.",
    description="Changes of {{ $labels.kind }} are found only by periodic lists.",
    runbook=Runbook(
        meaning="The API server accepts the watch but sends no events and no bookmarks, so the "
        "manager lists the objects instead.",
        impact="The manager still works. It notices changes later, and lists load the API server.",
        diagnosis=(
            "Read what the manager reports about the watch:",
            f"{_LOGS} | grep -i watch",
            "Check whether another client receives events:",
            "$ kubectl get hostinfoes -A --watch",
            "If it does not either, the fault is between both and the API server: a proxy or load "
            "balancer that buffers responses, or the API server itself.",
        ),
        fix=(
            "Disable response buffering in the proxy or load balancer in front of the API server, "
            "or let the manager connect to the API server directly.",
            "If only one kind is affected, restart the API server that serves it.",
        ),
    ),
    scenarios=(
        Scenario(
            {
                f'kubewright_watch_silent{{{JOB_SELECTOR},instance="a",kind="pods"}}': (
                    "0x5 1x20 0x20"
                )
            },
            fires_at_minute=20,
            resolves_at_minute=28,
            labels={"kind": "pods"},
        ),
    ),
)

QUEUE_STUCK = Alert(
    name="VSphereOperatorsQueueStuck",
    # A standby fills its queues but has no workers. Without leader election no series exists.
    expr=f"""\
(
  sum by (instance, controller) (workqueue_depth{{{JOB_SELECTOR}}}) > 0
  and sum by (instance, controller)
    (rate(workqueue_work_duration_seconds_count{{{JOB_SELECTOR}}}[10m])) == 0
  or max by (instance, controller)
    (workqueue_longest_running_processor_seconds{{{JOB_SELECTOR}}}) > 900
)
unless on (instance) leader_election_master_status{{{JOB_SELECTOR}}} == 0""",
    for_minutes=10,
    severity="warning",
    summary="The queue of {{ $labels.controller }} does not move.",
    description="Objects wait and none was finished for 10 minutes, or one reconcile runs for more "
    "than 15 minutes.",
    runbook=Runbook(
        meaning="The controller has work but finishes none of it.",
        impact="Objects of this kind keep an outdated status; VmGroups do not change.",
        diagnosis=(
            "Read the last lines of the controller:",
            f"{_LOGS} --tail=200",
            "Check the vCenter and the API server as the manager sees them:",
            _DOCTOR,
            "Open the dashboard Manager: a high event loop lag means that the process itself is "
            "blocked or has too little CPU.",
        ),
        fix=(
            "If vCenter or the API server does not respond, fix that; the queue then moves.",
            "If the CPU of the Pod is throttled, raise its limit.",
            "Otherwise restart the manager, which is safe at any time, and keep its log for a bug "
            "report: `kubectl -n vsphere-operators-system rollout restart deploy`.",
        ),
    ),
    scenarios=(
        Scenario(
            {
                f"workqueue_depth{_QUEUE}": "3x30 0x30",
                f"workqueue_work_duration_seconds_count{_QUEUE}": "7x30 8x30",
                f"workqueue_longest_running_processor_seconds{_QUEUE}": "0x60",
                f'leader_election_master_status{{{JOB_SELECTOR},instance="a",name="n"}}': "1x60",
            },
            fires_at_minute=25,
            resolves_at_minute=32,
            labels={"instance": "a", "controller": "hostinfo"},
        ),
        # One reconcile hangs while others finish.
        Scenario(
            {
                f"workqueue_work_duration_seconds_count{_QUEUE}": "0+10x80",
                f"workqueue_longest_running_processor_seconds{_QUEUE}": "0+60x40 0x40",
            },
            fires_at_minute=30,
            resolves_at_minute=42,
            labels={"instance": "a", "controller": "hostinfo"},
        ),
        # A standby has a full queue and no workers.
        Scenario(
            {
                f"workqueue_depth{_QUEUE}": "3x40",
                f"workqueue_work_duration_seconds_count{_QUEUE}": "0x40",
                f'leader_election_master_status{{{JOB_SELECTOR},instance="a",name="n"}}': "0x40",
            },
            fires_at_minute=None,
            resolves_at_minute=40,
        ),
    ),
)

RECONCILE_ERRORS = Alert(
    name="VSphereOperatorsReconcileErrors",
    expr=f"""\
sum by (controller) (rate(controller_runtime_reconcile_errors_total{{{JOB_SELECTOR}}}[10m]))
/
sum by (controller) (rate(controller_runtime_reconcile_total{{{JOB_SELECTOR}}}[10m]))
> 0.1""",
    for_minutes=15,
    severity="warning",
    summary="Reconciles of {{ $labels.controller }} fail.",
    description="{{ $value | humanizePercentage }} of the reconciles of {{ $labels.controller }} "
    "failed in the last 10 minutes.",
    runbook=Runbook(
        meaning="More than 10 % of the reconciles of one controller end with an error.",
        impact="The affected objects are retried with growing delays. Their Ready condition has "
        "the reason.",
        diagnosis=(
            "List the objects that are not ready, with their reasons:",
            "$ kubectl get hostinfoes,vminfoes,fcdinfoes,gpuinfoes,vmgroups -A -o wide",
            "Read the errors:",
            f'{_LOGS} | grep "Reconciler error"',
            "Check configuration, permissions and connections:",
            _DOCTOR,
        ),
        fix=(
            "Fix what the condition of an affected object names; its message ends with what to do.",
            "All reasons are listed in [conditions](../reference/conditions.md).",
        ),
    ),
    scenarios=(
        Scenario(
            {
                f"controller_runtime_reconcile_errors_total{_VMGROUP}": ("0+30x40 1200x40"),
                f"controller_runtime_reconcile_total{_VMGROUP}": ("0+60x80"),
            },
            fires_at_minute=30,
            resolves_at_minute=55,
            labels={"controller": "vmgroup"},
            value="50%",
        ),
    ),
)

CERTIFICATE_EXPIRING = Alert(
    name="VSphereOperatorsCertificateExpiring",
    expr=f"min by (server) (kubewright_certificate_expiry_seconds{{{JOB_SELECTOR}}}) - time()\n"
    "< 7 * 24 * 3600",
    for_minutes=60,
    severity="warning",
    summary="The certificate of the {{ $labels.server }} server expires soon.",
    description="The certificate expires in {{ $value | humanizeDuration }}.",
    runbook=Runbook(
        meaning="A certificate that the manager serves expires within 7 days. The manager renews "
        "its own certificates long before that, so this one comes from a mounted Secret, or its "
        "renewal fails.",
        impact="After the expiry of `metrics`, Prometheus can no longer scrape. After that of "
        "`webhooks`, `kubectl apply` shows no more warnings; no request is rejected.",
        diagnosis=(
            "Read what the manager reports about certificates:",
            f"{_LOGS} | grep -i certificate",
            "If cert-manager issues it, read its state:",
            "$ kubectl -n vsphere-operators-system get certificate,certificaterequest",
        ),
        fix=(
            "Fix the renewal that cert-manager reports, or replace the Secret. The manager loads "
            "the new files without a restart.",
            "If the manager's own CA cannot be renewed, apply the roles again: "
            "`kubectl apply --server-side -k config/rbac`.",
        ),
    ),
    scenarios=(
        Scenario(
            # promtool starts at 1970. The certificate is renewed after 100 minutes.
            {
                f'kubewright_certificate_expiry_seconds{{{JOB_SELECTOR},server="webhooks"}}': (
                    "518400x100 7776000x60"
                )
            },
            fires_at_minute=90,
            resolves_at_minute=102,
            labels={"server": "webhooks"},
            value="5d 22h 30m 0s",
        ),
    ),
)

ALERTS = (
    MANAGER_DOWN,
    NO_LEADER,
    WATCH_SILENT,
    QUEUE_STUCK,
    RECONCILE_ERRORS,
    CERTIFICATE_EXPIRING,
)
