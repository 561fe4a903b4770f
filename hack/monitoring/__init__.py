"""Alerts, dashboards and runbooks, all generated from the declarations in this package.

    python -m hack.monitoring            # writes to config/components and docs/runbooks
    python -m hack.monitoring --check    # writes nothing; fails and names stale files

`model` has the types. `manager_alerts`, `vsphere_alerts` and `datastore_alerts` declare the alerts,
each with its runbook and the series with which promtool tests it. `manager_dashboards`,
`vcenter_dashboards`, `vsphere_dashboards` and `vmgroup_dashboards` declare the dashboards. `rules`,
`grafana` and `runbooks` render them.
"""
