"""A CRD that is deleted, and objects that do not match their class."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any
from urllib.error import HTTPError

import pytest

from kubewright.builtin import Event
from kubewright.condition import Condition
from kubewright.controller import Controller, controller
from kubewright.kind import Key, ObjectMeta
from kubewright.manager import Options
from kubewright.testing import eventually
from kubewright.testing.controlplane import ControlPlane

from ..support.api_harness import ApiHarness, run_manager
from ..support.widget_kind import WidgetStatus
from .proxied_manager import (
    Gadget,
    GadgetSpec,
    gadget_crd,
    install_gadget_crd,
    temporary_gadget_crd,
)

CRD_NAME = Gadget.definition.group_resource
NESTING_LEVELS = 3000
"""Too deep for a recursive decoder, and not too deep for the API server."""


def make_doubling_controller() -> Controller[Gadget]:
    async def double(gadget: Gadget) -> None:
        gadget.status = WidgetStatus(doubled=gadget.spec.size * 2)

    return controller(Gadget, double)


async def create_gadget(api: ApiHarness, name: str, size: int) -> None:
    await api.client.create(
        Gadget(metadata=ObjectMeta(name=name, namespace=api.namespace), spec=GadgetSpec(size=size))
    )


def read_stored(plane: ControlPlane, api: ApiHarness, name: str) -> Any:
    """The object as it is stored, even if it does not match the class."""
    with plane.apiserver.admin_client() as https:
        return https.call("GET", Gadget.definition.path(api.namespace, name))


async def wait_for_ready(
    plane: ControlPlane, api: ApiHarness, name: str, reason: str, *, within: float = 60
) -> Condition:
    """The Ready condition, as soon as it has this reason."""

    async def find_condition() -> dict[str, Any] | None:
        status = (await asyncio.to_thread(read_stored, plane, api, name)).get("status", {})
        return next(
            (
                c
                for c in status.get("conditions", ())
                if (c["type"], c["reason"]) == ("Ready", reason)
            ),
            None,
        )

    condition = await eventually(find_condition, within=within, every=0.1)
    assert condition
    return Condition(
        type="Ready",
        status=condition["status"],
        reason=reason,
        message=condition.get("message", ""),
    )


def get_readyz(port: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def find_health_port(log: pytest.LogCaptureFixture) -> int:
    record = next(r for r in log.records if "serving health probes" in r.message)
    return int(record.fields["port"])  # type: ignore[attr-defined]


async def test_manager_waits_for_a_crd_that_is_deleted_and_applied_again(
    real_api: ApiHarness, control_plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    options = Options(
        metrics_bind_address="0",
        health_probe_bind_address="127.0.0.1:0",
        watch_namespaces=(real_api.namespace,),
        graceful_shutdown_seconds=5,
    )
    async with (
        temporary_gadget_crd(control_plane, gadget_crd()),
        run_manager(real_api, make_doubling_controller(), options=options) as manager,
    ):
        await create_gadget(real_api, "first", 1)
        await wait_for_ready(control_plane, real_api, "first", "Reconciled")
        assert await asyncio.to_thread(get_readyz, find_health_port(caplog)) == (200, "ok")
        await asyncio.to_thread(control_plane.kubectl, "delete", "crd", CRD_NAME, "--timeout=60s")
        await eventually(lambda: f"the kind {CRD_NAME} is not installed" in caplog.text)
        code, body = await asyncio.to_thread(get_readyz, find_health_port(caplog))
        assert code == 500
        assert f"{CRD_NAME}: the kind {CRD_NAME} is not installed" in body
        assert manager.cache.all(Gadget) == []
        await install_gadget_crd(control_plane, gadget_crd())
        await create_gadget(real_api, "second", 2)
        await wait_for_ready(control_plane, real_api, "second", "Reconciled")
        assert [gadget.metadata.name for gadget in manager.cache.all(Gadget)] == ["second"]
        assert await asyncio.to_thread(get_readyz, find_health_port(caplog)) == (200, "ok")
        assert caplog.text.count("is not installed") == 1


def apply_gadget(plane: ControlPlane, api: ApiHarness, name: str, spec: dict[str, Any]) -> None:
    """Write an object that our class would not accept."""
    metadata = {"name": name, "namespace": api.namespace}
    plane.apply(
        json.dumps(
            {
                "apiVersion": Gadget.definition.api_version,
                "kind": "Gadget",
                "metadata": metadata,
                "spec": spec,
            }
        )
    )


async def test_undecodable_object_reports_itself_and_does_not_affect_others(
    real_api: ApiHarness, control_plane: ControlPlane
) -> None:
    async with temporary_gadget_crd(control_plane, gadget_crd(maximum=None)):
        await asyncio.to_thread(apply_gadget, control_plane, real_api, "bad", {"size": 5000})
        await create_gadget(real_api, "good", 1)
        async with run_manager(real_api, make_doubling_controller()) as manager:
            await wait_for_ready(control_plane, real_api, "good", "Reconciled")
            condition = await wait_for_ready(control_plane, real_api, "bad", "Undecodable")
            assert condition.status == "False"
            assert "1000" in condition.message
            assert "kubectl explain gadget" in condition.message
            await eventually(lambda: list_warnings(real_api, "bad", "Undecodable"))
            assert (
                f'kubewright_undecodable_total{{kind="{CRD_NAME}"}}'
                in manager.metrics.exposition()[0].decode()
            )
            await create_gadget(real_api, "later", 2)
            await wait_for_ready(control_plane, real_api, "later", "Reconciled")
            await asyncio.to_thread(apply_gadget, control_plane, real_api, "bad", {"size": 500})
            await wait_for_ready(control_plane, real_api, "bad", "Reconciled")
            assert (await asyncio.to_thread(read_stored, control_plane, real_api, "bad"))["status"][
                "doubled"
            ] == 1000
            await asyncio.to_thread(apply_gadget, control_plane, real_api, "good", {"size": 2000})
            await wait_for_ready(control_plane, real_api, "good", "Undecodable")


async def list_warnings(api: ApiHarness, name: str, reason: str) -> list[Event]:
    events = await api.client.list(Event, api.namespace)
    return [
        e for e in events if (e.involvedObject.name, e.type, e.reason) == (name, "Warning", reason)
    ]


async def test_deeply_nested_object_does_not_affect_others(
    real_api: ApiHarness, control_plane: ControlPlane
) -> None:
    deep = '{"a":' * NESTING_LEVELS + "1" + "}" * NESTING_LEVELS
    head = f'"apiVersion":"{Gadget.definition.api_version}","kind":"Gadget"'
    body = f'{{{head},"metadata":{{"name":"deep"}},"spec":{{"junk":{deep}}}}}'
    path = Gadget.definition.path(real_api.namespace)
    async with temporary_gadget_crd(
        control_plane, gadget_crd(**{"x-kubernetes-preserve-unknown-fields": True})
    ):
        await asyncio.to_thread(
            control_plane.kubectl, "create", "--raw", path, "-f", "-", stdin=body
        )
        await create_gadget(real_api, "good", 1)
        async with run_manager(real_api, make_doubling_controller()):
            await wait_for_ready(control_plane, real_api, "good", "Reconciled")
            await real_api.client.patch(
                Gadget, Key(real_api.namespace, "good"), {"spec": {"size": 2}}
            )
            await eventually(
                lambda: asyncio.to_thread(is_doubled, control_plane, real_api, "good", 4)
            )


def is_doubled(plane: ControlPlane, api: ApiHarness, name: str, value: int) -> bool:
    return bool(read_stored(plane, api, name)["status"]["doubled"] == value)
