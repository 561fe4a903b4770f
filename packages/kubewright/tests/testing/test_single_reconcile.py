from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest

from kubewright import (
    ConfigMap,
    Controller,
    Doc,
    Done,
    Forbidden,
    Invalid,
    Key,
    ObjectMeta,
    Resource,
    Retry,
    Secret,
    Spec,
    Status,
    Terminal,
    Waiting,
    kind,
)
from kubewright.testing import RecordedEvent, reconcile

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class BannerSpec(Spec):
    text: Annotated[str, Doc("What it shows.", max_length=20)] = ""
    secret: Annotated[str, Doc("A Secret that it needs.")] = ""


class BannerStatus(Status):
    shownSince: Annotated[datetime | None, Doc("Since when.")] = None
    length: Annotated[int, Doc("Number of characters.", ge=0, le=20)] = 0


@kind("kubewright.test/v1")
class Banner(Resource[BannerSpec, BannerStatus]):
    """A text."""


def banner(text: str = "hello", secret: str = "", **metadata: Any) -> Banner:
    fields: dict[str, Any] = {"name": "a", "uid": "u-1", "generation": 3} | metadata
    return Banner(metadata=ObjectMeta(**fields), spec=BannerSpec(text=text, secret=secret))


class BannerController(Controller[Banner]):
    def __init__(self) -> None:
        self.owns(ConfigMap)
        self.reads(Secret)

    async def reconcile(self, obj: Banner) -> Done | Waiting:
        if obj.spec.text == "broken":
            raise Terminal("Broken", "The text is broken.")
        if obj.spec.text == "busy":
            raise Retry("Busy", "The printer is busy.")
        if obj.spec.text == "bug":
            raise ZeroDivisionError("division by zero")
        if obj.spec.secret and self.cache.get(Secret, Key("default", obj.spec.secret)) is None:
            return Waiting("SecretMissing", f"Secret {obj.spec.secret} does not exist.")
        shown = ConfigMap(metadata=ObjectMeta(name="shown"), data={"text": obj.spec.text})
        await self.apply(obj, shown if obj.spec.text else None)
        obj.status.shownSince = obj.status.shownSince or self.clock()
        obj.status.length = -1 if obj.spec.text == "negative" else len(obj.spec.text)
        remaining = obj.status.shownSince + timedelta(hours=1) - self.clock()
        self.event(obj, "Normal", "Shown", obj.spec.text)
        return Done(requeue_after_seconds=remaining.total_seconds())


async def test_object_writes_events_and_delay() -> None:
    result = await reconcile(BannerController(), banner(), clock=lambda: NOON)
    assert [str(write) for write in result.writes] == [
        "apply configmaps default/shown",
        "update banners default/a/status",
    ]
    assert result.writes[0].body["data"] == {"text": "hello"}
    assert result.object.status.length == 5
    assert result.object.status.shownSince == NOON
    assert result.ready is not None
    assert (result.ready.status, result.ready.lastTransitionTime) == ("True", NOON)
    assert result.ready.observedGeneration == 3
    assert result.events == [RecordedEvent("Normal", "Shown", "hello")]
    assert result.requeue_after_seconds == 3600
    assert (result.exists, result.error, result.retried_with_backoff) == (True, None, False)


async def test_again_sees_the_state_and_the_time_of_now() -> None:
    now = NOON
    result = await reconcile(BannerController(), banner(), clock=lambda: now)
    now += timedelta(minutes=20)
    result = await result.again()
    assert (result.writes, result.requeue_after_seconds) == ([], 2400)
    await result.client.patch(ConfigMap, Key("default", "shown"), {"data": {"text": "x"}})
    await result.client.patch(Banner, Key("default", "a"), {"spec": {"text": ""}})
    result = await result.again()
    assert [str(write) for write in result.writes] == [
        "delete configmaps default/shown",
        "patch banners default/a/status",
    ]
    assert (await result.again()).writes == []


async def test_other_objects_are_in_the_cache() -> None:
    needy = banner(secret="ink")
    waiting = await reconcile(BannerController(), needy)
    assert waiting.ready is not None
    assert (waiting.ready.status, waiting.ready.reason) == ("False", "SecretMissing")
    assert waiting.events == []
    ink = Secret(metadata=ObjectMeta(name="ink"))
    done = await reconcile(BannerController(), needy, ink)
    assert done.ready is not None
    assert done.ready.status == "True"


@pytest.mark.parametrize(
    ("text", "reason", "is_retried"),
    [("broken", "Broken", False), ("busy", "Busy", True), ("bug", "Error", True)],
)
async def test_failures(text: str, reason: str, is_retried: bool) -> None:
    result = await reconcile(BannerController(), banner(text))
    assert result.ready is not None
    assert (result.ready.status, result.ready.reason) == ("False", reason)
    assert [event.reason for event in result.events] == [reason]
    assert result.retried_with_backoff == is_retried
    expected = {"broken": Terminal, "busy": Retry, "bug": ZeroDivisionError}[text]
    assert isinstance(result.error, expected)


async def test_status_is_validated_by_the_schema() -> None:
    result = await reconcile(BannerController(), banner("negative"))
    assert isinstance(result.error, Invalid)
    assert "status.length" in str(result.error)
    assert result.object.status.length == 0


class LabelController(Controller[Banner]):
    async def reconcile(self, obj: Banner) -> None:
        await self.client.patch(Banner, obj.key, {"metadata": {"labels": {"seen": "yes"}}})


async def test_permission_that_is_not_declared() -> None:
    result = await reconcile(LabelController(), banner())
    assert isinstance(result.error, Forbidden)
    assert 'banners.kubewright.test "a" is forbidden' in str(result.error)
    assert 'does not declare the verb "patch"' in str(result.error)
    controller = LabelController()
    controller.needs(Banner, "patch")
    result = await reconcile(controller, banner())
    assert result.object.metadata.labels == {"seen": "yes"}


class CleaningController(Controller[Banner]):
    finalizer = "kubewright.test/clean"

    def __init__(self, *, is_clean: bool) -> None:
        self.is_clean = is_clean

    async def reconcile(self, obj: Banner) -> None:
        return None

    async def finalize(self, obj: Banner) -> Waiting | None:
        return None if self.is_clean else Waiting("Cleaning", "The wall is wet.")


async def test_finalizer() -> None:
    added = await reconcile(CleaningController(is_clean=True), banner())
    assert added.object.metadata.finalizers == ["kubewright.test/clean"]
    deleted = banner(deletionTimestamp=NOON, finalizers=["kubewright.test/clean"])
    kept = await reconcile(CleaningController(is_clean=False), deleted)
    assert kept.exists
    assert kept.ready is not None
    assert kept.ready.reason == "Cleaning"
    gone = await reconcile(CleaningController(is_clean=True), deleted)
    assert not gone.exists


class BlockingController(Controller[Banner]):
    def reconcile(self, obj: Banner) -> None:
        obj.status.length = len(obj.spec.text)


async def test_plain_function() -> None:
    result = await reconcile(BlockingController(), banner())
    assert result.object.status.length == 5
    assert (await result.again()).writes == []
