"""Marks tests of what only the newest supported Kubernetes serves."""

from __future__ import annotations

import os

import pytest

from kubewright.testing.pins import KUBERNETES_VARIABLE
from kubewright.version import NEWEST_KUBERNETES

_SELECTED = os.environ.get(KUBERNETES_VARIABLE) or NEWEST_KUBERNETES
IS_NEWEST = _SELECTED == NEWEST_KUBERNETES
REASON = f"it compares with Kubernetes {NEWEST_KUBERNETES}, and the tests run on {_SELECTED}"
newest_only = pytest.mark.skipif(not IS_NEWEST, reason=REASON)
