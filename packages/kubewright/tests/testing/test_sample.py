"""`read_sample`: errors name the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubewright.errors import ConfigError
from kubewright.testing import read_sample

from ..support.widget_kind import Widget


def test_sample_becomes_a_typed_object(tmp_path: Path) -> None:
    file = tmp_path / "widget.yaml"
    file.write_text("kind: Widget\nmetadata: {name: a}\nspec: {size: 2}\n")
    sample = read_sample(Widget, file)
    assert (sample.metadata.name, sample.spec.size) == ("a", 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spec: {size: many}", r"does not match Widget: .*Expected `int`, got `str`.*\$\.spec"),
        ("a: [", "is not valid YAML"),
        ("", "must have one object of kind Widget"),
        ("spec: {}\n---\nspec: {}", "must have one object of kind Widget"),
    ],
)
def test_error_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "widget.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=rf"widget\.yaml {message}"):
        read_sample(Widget, file)
