"""What FakeApi knows of built-in kinds is what the pinned API server serves."""

from __future__ import annotations

from hack import fake_schemas
from kubewright.testing.controlplane import ControlPlane


def test_schemas_of_built_in_kinds_are_those_of_the_api_server(
    control_plane: ControlPlane,
) -> None:
    with control_plane.apiserver.admin_client() as client:
        document = fake_schemas.build_document(client)
    # Other tests of this session install CRDs.
    stored = fake_schemas.FILE.read_text()
    for part in ("resources", "definitions"):
        document[part] = {k: v for k, v in document[part].items() if f'"{k}": ' in stored}
    assert fake_schemas.render(document) == stored, "run: make generate"
