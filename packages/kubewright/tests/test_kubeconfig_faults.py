"""Invalid kubeconfigs: each error names the file, the key and the fix, and no secret."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubewright.errors import ConfigError, KubeconfigError
from kubewright.kubeconfig import Connection, load_config
from kubewright.testing.cluster_access import encode_base64

from .support.credentials import SECRET
from .support.kubeconfigs import CA_PEM, make_kubeconfig

EXEC: dict[str, Any] = {"apiVersion": "client.authentication.k8s.io/v1", "command": "login"}
OLD_EXEC = EXEC | {"apiVersion": "client.authentication.k8s.io/v1alpha1"}

DOCUMENT_FAULTS: list[tuple[Any, str, str]] = [
    ([1], "", "Expected object"),
    ("plain text", "", "Expected object"),
    ({"kind": "Secret"}, "kind", "the file is a Secret"),
    ("", "current-context", "is not set"),
    ({"clusters": SECRET}, "clusters", "wrong type"),
    ({"users": [SECRET]}, "users[0]", "wrong type"),
    ({"users": [None]}, "users[0]", "wrong type"),
    ({"users": [{"user": {}}]}, "users[0]", "missing required field name"),
    ({"clusters": [{"name": []}]}, "clusters[0].name", "wrong type"),
    (make_kubeconfig() | {"current-context": ""}, "current-context", "contexts are: kind"),
    (
        make_kubeconfig() | {"current-context": "gone"},
        "current-context",
        'no context "gone". The contexts are: kind',
    ),
    (
        make_kubeconfig() | {"clusters": []},
        "contexts[name=kind].context.cluster",
        'no cluster "kind". The clusters are: (none)',
    ),
    (
        make_kubeconfig() | {"contexts": [{"name": "kind"}]},
        "contexts[name=kind].context.cluster",
        "the context has no cluster. The clusters are: kind",
    ),
    (make_kubeconfig() | {"users": []}, "contexts[name=kind].context.user", 'no user "kind"'),
]
CLUSTER_FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({"server": [SECRET]}, "server", "wrong type"),
    ({"server": ""}, "server", "is empty"),
    ({"server": "host:6443"}, "server", "https://host:port"),
    ({"server": "https://"}, "server", "https://host:port"),
    ({"server": "https://host:99999"}, "server", "https://host:port"),
    ({"server": "https://ho st"}, "server", "https://host:port"),
    ({"server": "https://[::1"}, "server", "https://host:port"),
    ({"server": f"https://me:{SECRET}@host"}, "server", "put credentials into"),
    ({"server": f"https://host?x={SECRET}"}, "server", "plain URL"),
    ({"insecure-skip-tls-verify": True}, "insecure-skip-tls-verify", "set certificate-authority"),
    ({"insecure-skip-tls-verify": "perhaps"}, "insecure-skip-tls-verify", "wrong type"),
    ({"proxy-url": f"socks5://u:{SECRET}@proxy"}, "proxy-url", "SOCKS proxies are not supported"),
    ({"proxy-url": SECRET}, "proxy-url", "not the URL of a proxy"),
    ({"certificate-authority-data": SECRET}, "certificate-authority-data", "base64"),
    (
        {"certificate-authority-data": encode_base64(SECRET.encode())},
        "certificate-authority-data",
        "PEM certificate",
    ),
    (
        {"certificate-authority-data": encode_base64(CA_PEM.replace(b"MII", b"AAA", 1))},
        "certificate-authority-data",
        "PEM certificate",
    ),
    ({"certificate-authority": "none.crt"}, "certificate-authority", "none.crt cannot be read"),
    ({"certificate-authority": "."}, "certificate-authority", "cannot be read"),
    ({"certificate-authority": "\0"}, "certificate-authority", "not a file name"),
]
USER_FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({"token": {SECRET: 1}}, "token", "has the wrong type"),
    (
        {"client-certificate-data": "!", "client-key": "x"},
        "client-certificate-data",
        "not valid base64",
    ),
    (
        {"client-key-data": SECRET + "!", "client-certificate": "x"},
        "client-key-data",
        "is not valid base64",
    ),
    ({"client-certificate": "x"}, "client-key", "client-certificate without it"),
    ({"client-key": "x"}, "client-certificate", "client-key without it"),
    ({"token": SECRET, "username": "me", "password": SECRET}, "username", "Keep one"),
    ({"auth-provider": {"name": SECRET}}, "auth-provider", "Set user.exec"),
    ({"token": SECRET, "as": "root"}, "as", "impersonation is not supported"),
    ({"as-groups": ["root"]}, "as-groups", "impersonation is not supported"),
    ({"exec": EXEC | {"args": SECRET}}, "exec.args", "wrong type"),
    ({"exec": EXEC | {"env": [{"value": SECRET}]}}, "exec.env[0]", "wrong type"),
    ({"exec": EXEC | {"command": ""}}, "exec.command", "is empty"),
    ({"exec": {"command": "x"}}, "exec.apiVersion", "v1 or client"),
    ({"exec": OLD_EXEC}, "exec.apiVersion", "Update the plugin"),
    (
        {"exec": EXEC | {"interactiveMode": "Always"}},
        "exec.interactiveMode",
        "Always needs a terminal",
    ),
    ({"exec": EXEC | {"interactiveMode": "Maybe"}}, "exec.interactiveMode", "must be Never"),
]
FAULTS = [
    *DOCUMENT_FAULTS,
    *(
        (make_kubeconfig(cluster), f"clusters[name=kind].cluster.{key}", problem)
        for cluster, key, problem in CLUSTER_FAULTS
    ),
    *(
        (make_kubeconfig({}, user), f"users[name=kind].user.{key}", problem)
        for user, key, problem in USER_FAULTS
    ),
]


class TestFaults:
    @pytest.mark.parametrize(("document", "key", "problem"), FAULTS)
    def test_error_names_file_and_key(
        self,
        load_kubeconfig: Callable[..., Connection],
        tmp_path: Path,
        document: Any,
        key: str,
        problem: str,
    ) -> None:
        with pytest.raises(KubeconfigError) as caught:
            load_kubeconfig(document)
        assert (caught.value.file, caught.value.key) == (str(tmp_path / "config"), key)
        assert problem in str(caught.value)
        assert SECRET not in "".join(traceback.format_exception(caught.value))

    @pytest.mark.parametrize(
        ("text", "where"),
        [
            (f"a: b\n  c: [\ntoken: {SECRET}", "line 2"),
            (f"users:\n- name: x\n  user:\n    password: *{SECRET}\n", "line 4"),
            (f"users:\n- name: x\n  user:\n    password: !{SECRET} x\n", "line 4"),
            (f"token: {SECRET}: x\n", "line 1"),
            (f"a: 1\ntoken: '{SECRET}\n", "line"),
        ],
    )
    def test_malformed_yaml_names_the_line_and_quotes_nothing(
        self, load_kubeconfig: Callable[..., Connection], text: str, where: str
    ) -> None:
        with pytest.raises(KubeconfigError, match=where) as caught:
            load_kubeconfig(text)
        assert SECRET not in "".join(traceback.format_exception(caught.value))

    def test_unknown_context_is_an_error(self, load_kubeconfig: Callable[..., Connection]) -> None:
        with pytest.raises(
            KubeconfigError, match=r'there is no context "other"\. The contexts are: kind\.'
        ):
            load_kubeconfig(make_kubeconfig(), context="other")

    def test_unreadable_file_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(KubeconfigError, match="Is a directory"):
            load_config(str(tmp_path), environ={}, home=tmp_path)

    @pytest.mark.parametrize(
        "master", ["host:6443", "ftp://host", "https://", f"https://me:{SECRET}@host"]
    )
    def test_invalid_master_is_an_error(self, tmp_path: Path, master: str) -> None:
        with pytest.raises(ConfigError, match="--master must be") as caught:
            load_config(master=master, environ={}, home=tmp_path)
        assert SECRET not in str(caught.value)

    def test_deep_nesting_is_an_error(self, load_kubeconfig: Callable[..., Connection]) -> None:
        for text in (
            "[" * 5000,
            "&a [*a]",
            "clusters: &a [*a]",
            "users: [{name: x, user: {auth-provider: &a [*a]}}]",
        ):
            with pytest.raises(KubeconfigError):
                load_kubeconfig(text)

    @settings(
        max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(
        content=st.one_of(
            st.binary(max_size=60),
            st.text(alphabet="ab:-[]{}&*!|>'\"\n ,#?%@~", max_size=60).map(str.encode),
        )
    )
    def test_any_bytes_are_a_connection_or_a_plain_error(
        self, tmp_path: Path, content: bytes
    ) -> None:
        (tmp_path / "config").write_bytes(content)
        with pytest.raises(KubeconfigError):
            load_config(str(tmp_path / "config"), environ={}, home=tmp_path)

    @settings(
        max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(data=st.data())
    def test_any_value_anywhere_gives_a_connection_or_a_config_error(
        self, tmp_path: Path, data: st.DataObject
    ) -> None:
        document = make_kubeconfig(
            {"certificate-authority-data": encode_base64(CA_PEM), "proxy-url": "http://p"},
            {"exec": EXEC, "username": "me", "password": "x"},
        )
        values = st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.text(max_size=5),
            st.lists(st.integers(), max_size=2),
            st.just({"a": 1}),
        )
        part = data.draw(
            st.sampled_from(
                [
                    document,
                    document["clusters"][0],
                    *(e[k] for k, e in list_entries(document)),
                    EXEC,
                ]
            )
        )
        key = data.draw(st.sampled_from(sorted(part)))
        text = yaml.safe_dump(replace_key(document, part, key, data.draw(values)))
        (tmp_path / "config").write_text(text)
        with suppress(KubeconfigError):
            assert load_config(str(tmp_path / "config"), environ={}, home=tmp_path).server


def list_entries(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(part, document[f"{part}s"][0]) for part in ("cluster", "user", "context")]


def replace_key(value: Any, part: Any, key: str, new: Any) -> Any:
    """The document with one key of one of its mappings set to something else."""
    if value is part:
        return {**value, key: new}
    if isinstance(value, dict):
        return {name: replace_key(item, part, key, new) for name, item in value.items()}
    return (
        [replace_key(item, part, key, new) for item in value] if isinstance(value, list) else value
    )
