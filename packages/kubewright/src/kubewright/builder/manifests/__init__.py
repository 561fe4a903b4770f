"""Generates config/, the installer and the Helm chart from what a project declares."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]
Files = dict[str, list[Document]]
