"""One vCenter: a session, a live inventory, and what can be asked of them. It knows nothing of Kubernetes."""
