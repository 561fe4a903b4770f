"""Alerts about vCenters, and about what the manager knows of them."""

from __future__ import annotations

from .model import Alert, Runbook, Scenario

_LOGS = "$ kubectl -n vsphere-operators-system logs deploy/vsphere-operators-controller-manager"
_DOCTOR = (
    "$ kubectl -n vsphere-operators-system exec deploy/vsphere-operators-controller-manager -- "
    "manager doctor"
)
_VM = 'vcenter="vc-1",vm="node-1",vm_id="vm-40"'

VCENTER_UNREACHABLE = Alert(
    name="VSphereVCenterUnreachable",
    expr="""\
min by (vcenter) (vsphere_vcenter_up) == 0
unless on (vcenter) max by (vcenter) (vsphere_vcenter_login_rejected) == 1""",
    for_minutes=5,
    severity="critical",
    summary="The inventory of vCenter {{ $labels.vcenter }} is not current.",
    description="vCenter {{ $labels.vcenter }} has been unavailable to the manager for 5 minutes.",
    runbook=Runbook(
        meaning="The manager cannot load or follow the inventory of the vCenter. The login is not "
        "rejected; that has an alert of its own.",
        impact="Statuses show the last known values, and their Ready condition reports since when. "
        "VmGroups in this vCenter are not changed. Metrics of its inventory are not served.",
        diagnosis=(
            "Check the connection, the certificate and the account as the manager sees them:",
            _DOCTOR,
            "Read the reason in the log:",
            f'{_LOGS} | grep "vCenter unavailable"',
            "Check whether vCenter's own web client responds, and whether its service vpxd runs.",
        ),
        fix=(
            "If the certificate is not trusted, mount the CA bundle, see [TLS](../howto/tls.md).",
            "If loading takes longer than `-vcenter-load-timeout`, raise it.",
            "Otherwise restore vCenter or the network. The manager reconnects automatically.",
        ),
    ),
    scenarios=(
        Scenario(
            {
                'vsphere_vcenter_up{vcenter="vc-1",instance="a"}': "1x5 0x15 1x20",
                'vsphere_vcenter_login_rejected{vcenter="vc-1",instance="a"}': "0x40",
            },
            fires_at_minute=13,
            resolves_at_minute=22,
            labels={"vcenter": "vc-1"},
        ),
        # The standby reaches vCenter, but the leader does not.
        Scenario(
            {
                'vsphere_vcenter_up{vcenter="vc-1",instance="a"}': "1x5 0x15 1x20",
                'vsphere_vcenter_up{vcenter="vc-1",instance="b"}': "1x40",
            },
            fires_at_minute=13,
            resolves_at_minute=22,
            labels={"vcenter": "vc-1"},
        ),
        # A rejected login has an alert of its own.
        Scenario(
            {
                'vsphere_vcenter_up{vcenter="vc-1",instance="a"}': "0x30",
                'vsphere_vcenter_login_rejected{vcenter="vc-1",instance="a"}': "1x30",
            },
            fires_at_minute=None,
            resolves_at_minute=30,
        ),
    ),
)

LOGIN_REJECTED = Alert(
    name="VSphereVCenterLoginRejected",
    expr="max by (vcenter) (vsphere_vcenter_login_rejected) == 1",
    for_minutes=1,
    severity="critical",
    summary="vCenter {{ $labels.vcenter }} rejects the login of the manager.",
    description="The user name or the password is wrong, or the account is locked.",
    runbook=Runbook(
        meaning="vCenter rejects the credentials. The manager retries rarely, so that it does not "
        "lock the account.",
        impact="As if the vCenter were unreachable: statuses become outdated, and VmGroups are not "
        "changed.",
        diagnosis=(
            "Read what vCenter answers:",
            _DOCTOR,
            "Read the user name that the Secret contains:",
            "$ kubectl -n vsphere-operators-system get secret vc-creds "
            "-o jsonpath='{.data.GOVMOMI_USERNAME}' | base64 -d",
            "Check in vCenter, under Single Sign On, whether the account is locked or its password "
            "has expired.",
        ),
        fix=(
            "Unlock the account in vCenter, or write the new password to the Secret. The manager "
            "reads the Secret again and logs in without a restart, see "
            "[install](../howto/install.md).",
        ),
    ),
    scenarios=(
        Scenario(
            {'vsphere_vcenter_login_rejected{vcenter="vc-1",instance="a"}': "0x5 1x10 0x20"},
            fires_at_minute=9,
            resolves_at_minute=17,
            labels={"vcenter": "vc-1"},
        ),
    ),
)

VMGROUP_NOT_CONVERGING = Alert(
    name="VSphereVmGroupNotConverging",
    expr='max by (phase) (vsphere_vmgroups{phase!="RUNNING"}) > 0',
    for_minutes=30,
    severity="warning",
    summary="VmGroups stay in phase {{ $labels.phase }}.",
    description="For 30 minutes at least one VmGroup has been in phase {{ $labels.phase }}; now "
    "there are {{ $value }}.",
    runbook=Runbook(
        meaning="A VmGroup does not reach the state that its spec describes. PENDING: it is in "
        "progress, waits, or is paused (`spec.paused`) before it is done. ERROR: it cannot "
        "proceed without a change.",
        impact="The group has fewer, more or other VMs than its spec requests.",
        diagnosis=(
            "List the groups with their phase and message:",
            "$ kubectl get vmgroups -A",
            "Read the conditions and Events of a group:",
            "$ kubectl -n NAMESPACE describe vmgroup NAME",
            "Read its replicas and their tasks:",
            "$ kubectl vsphere describe group NAME -n NAMESPACE",
        ),
        fix=(
            "Follow the message in `status.lastMessage` and the Ready condition: it names the "
            "missing template, the quota or the vCenter task that failed.",
            "If clones are only slow, raise `-vcenter-operations`, see [tune](../howto/tune.md).",
        ),
    ),
    scenarios=(
        Scenario(
            {
                'vsphere_vmgroups{phase="ERROR",instance="a"}': "0x5 2x50 0x20",
                # The standby reports the same groups.
                'vsphere_vmgroups{phase="ERROR",instance="b"}': "0x5 2x50 0x20",
                'vsphere_vmgroups{phase="RUNNING",instance="a"}': "3x80",
            },
            fires_at_minute=40,
            resolves_at_minute=58,
            labels={"phase": "ERROR"},
            value="2",
        ),
    ),
)

_NODE_NAMES = """\
  * on (vcenter, vm_id) group_left (node, host) max by (vcenter, vm_id, node, host)
    (vsphere_vm_info{node!=""})"""
NODE_HOST_PRESSURE = Alert(
    name="VSphereNodeHostPressure",
    expr=f"""\
label_replace(
  max by (vcenter, vm_id) (vsphere_vm_cpu_readiness_ratio) > 0.1,
  "pressure", "CPUReady", "", "")
{_NODE_NAMES}
or label_replace(
  max by (vcenter, vm_id)
    (vsphere_vm_memory_ballooned_bytes / vsphere_vm_memory_size_bytes) > 0.05,
  "pressure", "Ballooning", "", "")
{_NODE_NAMES}
or label_replace(
  max by (vcenter, vm_id)
    (vsphere_vm_memory_swapped_bytes / vsphere_vm_memory_size_bytes) > 0.1,
  "pressure", "Swapping", "", "")
{_NODE_NAMES}""",
    for_minutes=10,
    severity="warning",
    summary="Host {{ $labels.host }} of Node {{ $labels.node }} is under pressure.",
    description="{{ $labels.pressure }} of the VM of Node {{ $labels.node }} is "
    "{{ $value | humanizePercentage }}: the host has too little CPU or memory for its VMs.",
    runbook=Runbook(
        meaning="CPUReady: the VM waits for a physical CPU for more than 10 % of the time. "
        "Ballooning: the host reclaimed more than 5 % of its memory. Swapping: the host swapped "
        "more than 10 % of its memory to disk.",
        impact="Pods on the Node are slow although Kubernetes shows free capacity. kubelet may "
        "miss its heartbeats, and the Node becomes NotReady.",
        diagnosis=(
            "Show the Nodes, their VMs and hosts:",
            "$ kubectl vsphere tree",
            "Compare the load of the hosts:",
            "$ kubectl vsphere top hosts",
            "Check in vCenter whether DRS is on for the cluster and why it does not move VMs.",
        ),
        fix=(
            "Move the VM, or other VMs of the host, to a host with free capacity.",
            "Reserve CPU and memory for VMs that are Nodes, or add hosts to the cluster.",
            "Until then, cordon the Node: `kubectl cordon NODE`.",
        ),
    ),
    scenarios=(
        Scenario(
            {
                f"vsphere_vm_cpu_readiness_ratio{{{_VM}}}": "0x5 0.25x30 0.01x30",
                f"vsphere_vm_memory_size_bytes{{{_VM}}}": "1000x65",
                f"vsphere_vm_memory_ballooned_bytes{{{_VM}}}": "0x65",
                f"vsphere_vm_memory_swapped_bytes{{{_VM}}}": "0x65",
                f'vsphere_vm_info{{{_VM},host="esxi-1",host_id="host-12",node="node-1"}}': "1x65",
            },
            fires_at_minute=20,
            resolves_at_minute=38,
            labels={
                "vcenter": "vc-1",
                "vm_id": "vm-40",
                "pressure": "CPUReady",
                "node": "node-1",
                "host": "esxi-1",
            },
            value="25%",
        ),
        *(
            Scenario(
                {
                    f"vsphere_vm_memory_size_bytes{{{_VM}}}": "1000x65",
                    f"vsphere_vm_memory_{metric}_bytes{{{_VM}}}": "0x5 300x30 0x30",
                    f'vsphere_vm_info{{{_VM},host="esxi-1",host_id="host-12",node="node-1"}}': (
                        "1x65"
                    ),
                },
                fires_at_minute=20,
                resolves_at_minute=38,
                labels={
                    "vcenter": "vc-1",
                    "vm_id": "vm-40",
                    "pressure": pressure,
                    "node": "node-1",
                    "host": "esxi-1",
                },
                value="30%",
            )
            for metric, pressure in (("ballooned", "Ballooning"), ("swapped", "Swapping"))
        ),
        # A VM that is not a Node.
        Scenario(
            {
                f"vsphere_vm_cpu_readiness_ratio{{{_VM}}}": "0.5x40",
                f'vsphere_vm_info{{{_VM},host="esxi-1",host_id="host-12"}}': "1x40",
            },
            fires_at_minute=None,
            resolves_at_minute=40,
        ),
    ),
)

METRICS_OMITTED = Alert(
    name="VSphereInventoryMetricsOmitted",
    expr="max by (vcenter, type) (vsphere_inventory_metrics_omitted_objects) > 0",
    for_minutes=60,
    severity="info",
    summary="Some objects of vCenter {{ $labels.vcenter }} have no metrics.",
    description="{{ $value }} objects of type {{ $labels.type }} are above "
    "-inventory-metrics-limit, so no alert covers them.",
    runbook=Runbook(
        meaning="The vCenter has more objects of this type than `-inventory-metrics-limit` allows. "
        "VMs that are Nodes are served first.",
        impact="Dashboards and alerts do not cover the omitted objects.",
        diagnosis=(
            "Read the flags of the manager:",
            "$ kubectl -n vsphere-operators-system get deploy "
            "-o jsonpath='{.items[*].spec.template.spec.containers[*].args}'",
        ),
        fix=(
            "Raise `-inventory-metrics-limit`. Each VM and each host adds ten series.",
            "If all VMs are served, remove `-inventory-metrics-all-vms`.",
        ),
    ),
    scenarios=(
        Scenario(
            {
                'vsphere_inventory_metrics_omitted_objects{vcenter="vc-1",type="VirtualMachine"}': (
                    "7x90 0x60"
                )
            },
            fires_at_minute=70,
            resolves_at_minute=95,
            labels={"vcenter": "vc-1", "type": "VirtualMachine"},
            value="7",
        ),
    ),
)

ALERTS = (
    VCENTER_UNREACHABLE,
    LOGIN_REJECTED,
    VMGROUP_NOT_CONVERGING,
    NODE_HOST_PRESSURE,
    METRICS_OMITTED,
)
