"""The fake and the real API server give the same responses, which are stored in transcripts/.

`KUBEWRIGHT_RECORD=1 pytest packages/kubewright/tests/testing/fake` writes the responses of the real
API server to the files.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from kubewright.client import Client
from kubewright.testing.controlplane import ControlPlane
from kubewright.testing.fake import FakeApi

from ...support.api_harness import ApiHarness
from ...support.kubernetes_version import IS_NEWEST, REASON
from . import (
    scenarios_apply,
    scenarios_builtin,
    scenarios_read,
    scenarios_schema,
    scenarios_write,
)
from .crds import GADGET, PLAIN
from .ruled_crd import RULED
from .transcript import Player, StatusReceived, Step

CRDS = [GADGET, PLAIN, RULED]
FOLDER = Path(__file__).parent / "transcripts"
_MODULES = (scenarios_apply, scenarios_write, scenarios_read, scenarios_schema, scenarios_builtin)
SCENARIOS: dict[str, tuple[str, list[Step]]] = {
    title: (module.__name__.rpartition("scenarios_")[2], steps)
    for module in _MODULES
    for title, steps in module.SCENARIOS.items()
}


@pytest.fixture(scope="session")
def crds_installed(control_plane: ControlPlane) -> None:
    control_plane.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": CRDS}))
    control_plane.wait_for_crds()


@pytest.fixture
def prepared_api(request: pytest.FixtureRequest, api: ApiHarness) -> ApiHarness:
    if api.is_real:
        if not IS_NEWEST:
            # The fake answers as the newest version. An older one has other texts and lacks
            # functions of CEL, such as isSemver.
            pytest.skip(REASON)
        request.getfixturevalue("crds_installed")
        return api
    fake = FakeApi(only_known_kinds=True)
    for crd in CRDS:
        fake.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    return ApiHarness(fake, Client(fake), api.namespace)


@pytest.mark.parametrize("title", SCENARIOS)
async def test_transcript(
    prepared_api: ApiHarness, title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("kubewright.transport", "kubewright.testing.fake.failure"):
        monkeypatch.setattr(f"{module}.error_from_status", StatusReceived)
    folder, steps = SCENARIOS[title]
    file = FOLDER / folder / f"{re.sub('[^a-z]+', '-', title.lower()).strip('-')}.yaml"
    player = Player(prepared_api.transport, prepared_api.namespace)
    answers = await player.play(steps)
    if prepared_api.is_real and os.environ.get("KUBEWRIGHT_RECORD"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(to_text(answers))
    for answer, expected in zip(answers, yaml.safe_load(file.read_text()), strict=True):
        assert to_text(answer) == to_text(expected)


def test_documentation_has_the_current_numbers() -> None:
    page = Path(__file__).parents[5] / "docs/designs/testing.md"
    requests = sum(len(steps) for _, steps in SCENARIOS.values())
    text = " ".join(page.read_text().split())
    assert f"has {len(SCENARIOS)} scenarios of {requests} requests" in text


def to_text(value: object) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=100, default_flow_style=None)
