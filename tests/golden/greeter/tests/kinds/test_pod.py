"""Unit tests of the controller of Pod."""

from __future__ import annotations

from kubewright import Done, ObjectMeta
from kubewright.api.core_v1 import Pod

from greeter.kinds.pod import PodController


async def test_object_is_reconciled() -> None:
    pod = Pod(metadata=ObjectMeta(name="example"))
    assert await PodController().reconcile(pod) == Done()
