"""The vSphere API side: one session and the live inventory of a vCenter. No Kubernetes here."""
