"""Operators that answer, live, what runs under a Kubernetes cluster on VMware vSphere.

Comments that mention an "original operator" mean one of those that README.md lists and links: the
kinds come from them, and existing manifests and scripts rely on their names and texts.
"""
