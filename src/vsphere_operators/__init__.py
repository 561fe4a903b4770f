"""Operators that answer, live, what runs under a Kubernetes cluster on VMware vSphere."""
