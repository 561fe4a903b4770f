"""The cluster and the vSphere under it as one model, served over HTTP: docs/designs/topology.md."""
