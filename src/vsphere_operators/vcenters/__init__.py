"""The Kubernetes side of vCenters: their configuration, and which one serves a namespace."""
