"""A manager behind a proxy, and checks of its results against the API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from kubewright.crd import build_crds
from kubewright.kind import Resource, Spec, kind
from kubewright.kubeconfig import load_config
from kubewright.manager import Manager
from kubewright.markers import Doc
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane

from ..support.api_harness import ApiHarness
from ..support.widget_kind import Widget, WidgetStatus

WIDGETS_PATH = "*/widgets"
WIDGET_STATUS_PATH = "*/widgets/*/status"


class GadgetSpec(Spec):
    size: Annotated[int, Doc("How large.", ge=0, le=1000)] = 0


@kind("faults.kubewright.test/v1")
class Gadget(Resource[GadgetSpec, WidgetStatus]):
    """A kind with a CRD that a test may delete or change."""


async def connect_through(api: ApiHarness, kubeconfig: Path) -> ApiHarness:
    """The same API server for the test; the manager connects by this kubeconfig."""
    return replace(
        api,
        connection=await asyncio.to_thread(
            load_config, str(kubeconfig), environ={}, home=Path("/")
        ),
    )


async def wait_until_reconciled(api: ApiHarness, manager: Manager, *, within: float = 60) -> None:
    """Wait until every widget has its status and the cache holds exactly the stored widgets."""

    async def is_current() -> bool:
        stored = await api.client.list(Widget, api.namespace)
        cached = {
            widget.key: widget.metadata.resourceVersion for widget in manager.cache.all(Widget)
        }
        reconciled = all(
            w.status.doubled == w.spec.size * 2
            and w.status.observedGeneration == w.metadata.generation
            for w in stored
        )
        return reconciled and cached == {
            widget.key: widget.metadata.resourceVersion for widget in stored
        }

    await eventually(is_current, within=within, every=0.1)


async def change_widgets(api: ApiHarness) -> None:
    """One create, one edit and one delete, which a manager without a watch has to find later."""
    await api.create_widget("created", size=11)
    changed, deleted = await api.get_widget("changed"), await api.get_widget("deleted")
    await api.client.patch(Widget, changed.key, {"spec": {"size": changed.spec.size + 1}})
    await api.client.delete(Widget, deleted.key)


async def create_widgets(api: ApiHarness) -> None:
    for size, name in enumerate(("kept", "changed", "deleted")):
        await api.create_widget(name, size=size)


def gadget_crd(*, maximum: int | None = 1000, **spec_schema: Any) -> str:
    """The CRD of Gadget, with another limit for its size or additions to its schema."""
    manifest = build_crds([Gadget])[0]
    spec = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec.update(spec_schema)
    spec["properties"]["size"] |= {"maximum": maximum}
    return json.dumps(manifest)


@asynccontextmanager
async def temporary_gadget_crd(plane: ControlPlane, crd: str) -> AsyncIterator[None]:
    await install_gadget_crd(plane, crd)
    try:
        yield
    finally:
        await asyncio.to_thread(
            plane.kubectl,
            "delete",
            "crd",
            Gadget.definition.group_resource,
            "--ignore-not-found",
            "--timeout=60s",
        )


async def install_gadget_crd(plane: ControlPlane, crd: str) -> None:
    await asyncio.to_thread(plane.apply, crd)
    await asyncio.to_thread(plane.wait_for_crds, Gadget.definition.group_resource)
