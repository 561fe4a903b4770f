"""`reconcile` validates children of kinds that `kubewright import` has written types for."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubewright import Controller, Done, Object, ObjectMeta
from kubewright.api.autoscaling_v2 import HorizontalPodAutoscaler
from kubewright.builder.cli import main
from kubewright.testing import ReconcileResult, reconcile
from kubewright.yaml_text import to_yaml

from ..builder.typegen.generated_modules import new_crd
from ..support.widget_kind import Friend

SPEC = {"type": "object", "properties": {"size": {"type": "integer", "maximum": 3}}}


class FriendController(Controller[Friend]):
    """Applies one child, which it gets from the test."""

    def __init__(self, child: Object) -> None:
        self.owns(type(child))
        self._child = child

    async def reconcile(self, obj: Friend) -> Done:
        await self.apply(obj, self._child)
        return Done()


async def apply_child(child: Object) -> ReconcileResult[Friend]:
    friend = Friend(metadata=ObjectMeta(name="a", uid="u-1"))
    return await reconcile(FriendController(child), friend)


@pytest.fixture(params=[True, False], ids=["storage", "other-version"])
def module(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    crd = new_crd(spec_schema=SPEC)
    crd["spec"]["versions"][0]["storage"] = request.param
    file = tmp_path / "crds.yaml"
    file.write_text(to_yaml(crd))
    assert main(["import", str(file), "--output", str(tmp_path)]) == 0
    name = f"imported_widget_{request.param}"
    spec = importlib.util.spec_from_file_location(name, tmp_path / "example_v1_widget.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    yield sys.modules[name]
    del sys.modules[name]


async def test_child_of_an_imported_kind_is_validated(module: Any) -> None:
    def widget(size: int) -> Object:
        result: Object = module.Widget(
            metadata=ObjectMeta(name="w"), spec=module.WidgetSpec(size=size)
        )
        return result

    assert (await apply_child(widget(3))).error is None
    result = await apply_child(widget(4))
    assert "spec.size in body should be less than or equal to 3" in str(result.error)


async def test_child_of_a_built_in_kind_is_validated() -> None:
    result = await apply_child(HorizontalPodAutoscaler(metadata=ObjectMeta(name="w")))
    assert "spec.maxReplicas: Required value: must be set" in str(result.error)
