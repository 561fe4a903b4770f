"""Kinds that tests share."""

from __future__ import annotations

from typing import Annotated

from kubewright.kind import Resource, Spec, Status, kind
from kubewright.markers import Column, Doc


class WidgetSpec(Spec):
    size: Annotated[int, Doc("How large.", ge=0, le=1000)] = 0
    friend: Annotated[str, Doc("The Friend that it depends on.")] = ""


class WidgetStatus(Status):
    doubled: Annotated[int | None, Doc("Twice the size.")] = None


@kind("kubewright.test/v1", short=("wd",), columns=[Column("Size", ".spec.size")])
class Widget(Resource[WidgetSpec, WidgetStatus]):
    """A thing to test with."""


async def double(widget: Widget) -> None:
    widget.status = WidgetStatus(doubled=widget.spec.size * 2)


@kind("kubewright.test/v1")
class Friend(Resource[WidgetSpec, WidgetStatus]):
    """A thing that widgets depend on."""
