"""Selectors are parsed and evaluated as the API server does: the same examples run on both."""

from __future__ import annotations

import pytest

from kubewright.errors import BadRequest, ConfigError
from kubewright.kind import Key
from kubewright.selectors import parse_field_selector, parse_label_selector

from .support.api_harness import ApiHarness
from .support.widget_kind import Widget

LABELS: dict[str, dict[str, str]] = {
    "none": {},
    "web": {"app": "web"},
    "web-prod": {"app": "web", "example.com/tier": "prod"},
    "db": {"app": "db", "example.com/tier": "test", "size": "3"},
    "empty": {"app": "", "size": "10"},
    "text": {"size": "large", "in": "in"},
}

VALID_LABEL_SELECTORS = [
    "",
    "app=web",
    " app == web ",
    "app!=web",
    "app=",
    "app",
    "!app",
    "! app",
    "app in (web, db)",
    "app in(web)",
    "app in (,web)",
    "app in ()",
    "app notin (web,db)",
    "app=web,example.com/tier=prod",
    "app=web,!example.com/tier",
    "size>2",
    "size<2",
    "size>2,app!=db",
    "in in (in)",
]

INVALID_LABEL_SELECTORS = [
    "app web",
    "app=web,",
    ",",
    "app=web,,size",
    "app=web=x",
    "app=web db",
    "!",
    "app in web",
    "app in (web",
    "-app=web",
    "app=web;db",
    "Example.com/tier=prod",
    "size>big",
    "size>-2",
    "app=" + "x" * 64,
    "a/b/c=d",
]

VALID_FIELD_SELECTORS = ["", "metadata.name=web", "metadata.name!=web", "metadata.name==web"]

INVALID_FIELD_SELECTORS = ["metadata.name", "=web", "a=b=c", "metadata.name in (web)"]


@pytest.mark.parametrize("selector", VALID_LABEL_SELECTORS)
def test_canonical_form_of_a_label_selector_is_equal_to_it(selector: str) -> None:
    parsed = parse_label_selector(selector)
    assert parse_label_selector(str(parsed)) == parsed


@pytest.mark.parametrize("selector", INVALID_LABEL_SELECTORS)
def test_invalid_label_selector_is_rejected(selector: str) -> None:
    with pytest.raises(ConfigError, match="label selector "):
        parse_label_selector(selector)


@pytest.mark.parametrize("selector", INVALID_FIELD_SELECTORS)
def test_invalid_field_selector_is_rejected(selector: str) -> None:
    with pytest.raises(ConfigError, match=r"field selector .* cannot be parsed"):
        parse_field_selector(selector)


def test_order_and_spelling_do_not_matter() -> None:
    assert parse_label_selector("b in (y,x), a==1") == parse_label_selector("a=1,b in (x, y, x)")
    assert parse_field_selector("b=2,a==1") == parse_field_selector("a=1,b=2")


def test_escaped_characters_in_a_field_selector() -> None:
    selector = parse_field_selector(r"metadata.name=a\,b\=c\\")
    assert selector.matches(name="a,b=c\\", namespace="n")
    assert str(selector) == r"metadata.name=a\,b\=c\\"


def test_only_the_server_can_decide_about_other_fields() -> None:
    selector = parse_field_selector("spec.nodeName=node,metadata.namespace=n")
    assert selector.matches(name="a", namespace="n") is None
    assert selector.matches(name="a", namespace="other") is False


async def test_every_selector_selects_what_the_api_server_selects(real_api: ApiHarness) -> None:
    for name, labels in LABELS.items():
        await real_api.create_widget(name)
        key = Key(real_api.namespace, name)
        await real_api.client.patch(Widget, key, {"metadata": {"labels": labels}})

    async def select_on_server(**selectors: str) -> set[str]:
        widgets = await real_api.client.list(Widget, real_api.namespace, **selectors)
        return {widget.metadata.name for widget in widgets}

    for text in VALID_LABEL_SELECTORS:
        label_selector = parse_label_selector(text)
        expected = {name for name, labels in LABELS.items() if label_selector.matches(labels)}
        assert await select_on_server(label_selector=text) == expected, text
        assert await select_on_server(label_selector=str(label_selector)) == expected, text
    for text in VALID_FIELD_SELECTORS:
        field_selector = parse_field_selector(text)
        expected = {
            name
            for name in LABELS
            if field_selector.matches(name=name, namespace=real_api.namespace)
        }
        assert await select_on_server(field_selector=text) == expected, text
    for text in INVALID_LABEL_SELECTORS:
        with pytest.raises(BadRequest):
            await select_on_server(label_selector=text)
    for text in INVALID_FIELD_SELECTORS:
        with pytest.raises(BadRequest):
            await select_on_server(field_selector=text)
