"""The files of `chart_manifests` in [tool.kubewright], which values add to the chart."""

from __future__ import annotations

from ...yaml_text import parse_documents
from ..manifests import Document
from ..project import Project


def read_manifests(project: Project, path: str) -> list[Document]:
    """The objects of a file; those with a namespace get the namespace of the release."""
    documents = [
        document
        for document in parse_documents(project.read_text(path), path)
        if isinstance(document, dict)
    ]
    for document in documents:
        if "namespace" in document.get("metadata", {}):
            document["metadata"]["namespace"] = project.namespace
    return documents
