"""Users of the cluster, and the end of the command that binds the manager's role to each."""

from __future__ import annotations

MANAGER_ACCOUNT = "system:serviceaccount:vsphere-operators-system:controller-manager"
USERS = {
    MANAGER_ACCOUNT: "kubectl apply --server-side -k config/rbac",
    "system:serviceaccount:a:b": (
        "--clusterrole=vsphere-operators-manager-role --serviceaccount=a:b"
    ),
    "ann@example.com": "--clusterrole=vsphere-operators-manager-role --user=ann@example.com",
    "o'hara": """--user='o'"'"'hara'""",
}
