"""The dashboard of the calls of the manager to vCenter."""

from __future__ import annotations

from .model import Dashboard, Panel, Query, Section
from .promql import VCENTER, p99, rate

VCENTER_API = Dashboard(
    "vcenter-api",
    "vSphere operators / vCenter API",
    "How the manager talks to vCenter: availability, calls, errors and the inventory.",
    (
        Section(
            "State",
            (
                Panel(
                    "vCenter up",
                    "1 if the inventory is loaded and current.",
                    "short",
                    (Query(f"max by (vcenter) (vsphere_vcenter_up{{{VCENTER}}})", "{{vcenter}}"),),
                    type="stat",
                    width=6,
                    height=4,
                ),
                Panel(
                    "Login rejected",
                    "1 if vCenter rejects the credentials.",
                    "short",
                    (
                        Query(
                            f"max by (vcenter) (vsphere_vcenter_login_rejected{{{VCENTER}}})",
                            "{{vcenter}}",
                        ),
                    ),
                    type="stat",
                    width=6,
                    height=4,
                ),
                Panel(
                    "Sessions",
                    "Open sessions: one for each manager and vCenter.",
                    "short",
                    (
                        Query(
                            f"sum by (vcenter) (vsphere_vcenter_sessions{{{VCENTER}}})",
                            "{{vcenter}}",
                        ),
                    ),
                    type="stat",
                    width=6,
                    height=4,
                ),
                Panel(
                    "Logins since the start",
                    "Each login after the first means that a session was lost.",
                    "short",
                    (
                        Query(
                            f"max by (vcenter) (vsphere_vcenter_logins{{{VCENTER}}})",
                            "{{vcenter}}",
                        ),
                    ),
                    type="stat",
                    width=6,
                    height=4,
                ),
            ),
        ),
        Section(
            "Calls",
            (
                Panel(
                    "Calls by method",
                    "Calls to vCenter. WaitForUpdatesEx returns every 15 s or with a change.",
                    "reqps",
                    (
                        Query(
                            rate("vsphere_vcenter_calls_total", "method", selector=VCENTER),
                            "{{method}}",
                        ),
                    ),
                    width=12,
                ),
                Panel(
                    "Calls by outcome",
                    "How calls to vCenter ended.",
                    "reqps",
                    (
                        Query(
                            rate(
                                "vsphere_vcenter_calls_total",
                                "vcenter",
                                "outcome",
                                selector=VCENTER,
                            ),
                            "{{vcenter}} {{outcome}}",
                        ),
                    ),
                    width=12,
                ),
                Panel(
                    "Time of a call, p99",
                    "99 % of the calls take at most this long, without WaitForUpdatesEx.",
                    "s",
                    (
                        Query(
                            p99(
                                "vsphere_vcenter_call_duration_seconds",
                                "method",
                                f'{VCENTER},method!="WaitForUpdatesEx"',
                            ),
                            "{{method}}",
                        ),
                    ),
                    width=12,
                ),
                Panel(
                    "Undecodable values",
                    "Values of vCenter that were left unset because they could not be decoded.",
                    "short",
                    (
                        Query(
                            "sum by (type, property) "
                            f"(vsphere_vcenter_undecodable_values_total{{{VCENTER}}})"
                            " or vector(0)",
                            "{{type}} {{property}}",
                        ),
                    ),
                    width=12,
                ),
            ),
        ),
        Section(
            "Inventory",
            (
                Panel(
                    "Age",
                    "Seconds since the last response of the property collector. Above 30 s the "
                    "inventory is out of date.",
                    "s",
                    (
                        Query(
                            f"min by (vcenter) (vsphere_inventory_age_seconds{{{VCENTER}}})",
                            "{{vcenter}}",
                        ),
                    ),
                ),
                Panel(
                    "Objects",
                    "Objects in the inventory by type.",
                    "short",
                    (
                        Query(
                            f"max by (vcenter, type) (vsphere_inventory_objects{{{VCENTER}}})",
                            "{{vcenter}} {{type}}",
                        ),
                    ),
                ),
                Panel(
                    "Updates",
                    "Changes that vCenter reports by type.",
                    "ops",
                    (
                        Query(
                            rate(
                                "vsphere_inventory_updates_total",
                                "type",
                                "kind",
                                selector=VCENTER,
                            ),
                            "{{type}} {{kind}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
    variables={"vcenter": "vsphere_vcenter_up"},
)

DASHBOARDS = (VCENTER_API,)
