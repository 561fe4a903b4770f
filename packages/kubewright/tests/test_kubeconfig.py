"""The settings of a kubeconfig, and that no repr shows a secret."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from kubewright.kubeconfig import Connection, ExecPlugin, Identity, load_config
from kubewright.testing.ca import CertificateAuthority
from kubewright.testing.cluster_access import encode_base64

from .support.credentials import SECRET
from .support.kubeconfigs import CA_PEM, make_kubeconfig

CLIENT_CERTIFICATE = CertificateAuthority("test").issue_client_certificate("ann")


class TestContents:
    def test_cluster_settings_are_read(
        self, load_kubeconfig: Callable[..., Connection], tmp_path: Path
    ) -> None:
        cluster = {
            "server": "https://host/k8s/clusters/c-1/",
            "certificate-authority-data": encode_base64(CA_PEM),
            "certificate-authority": "missing",
            "tls-server-name": "kubernetes",
            "proxy-url": f"http://user:{SECRET}@proxy:3128",
        }
        connection = load_kubeconfig(make_kubeconfig(cluster, namespace="here"))
        assert connection.server == "https://host/k8s/clusters/c-1"
        assert (connection.ca_pem, connection.tls_server_name) == (CA_PEM, "kubernetes")
        assert (connection.proxy_url, connection.namespace) == (cluster["proxy-url"], "here")
        assert connection.source == f'kubeconfig {tmp_path / "config"}, context "kind"'

    def test_relative_paths_are_relative_to_the_kubeconfig(
        self, load_kubeconfig: Callable[..., Connection], tmp_path: Path
    ) -> None:
        (tmp_path / "ca.crt").write_bytes(CA_PEM)
        user = {"client-certificate": "my.crt", "client-key": "/keys/my.key", "tokenFile": "t"}
        connection = load_kubeconfig(make_kubeconfig({"certificate-authority": "ca.crt"}, user))
        identity = connection.identity
        assert connection.ca_pem == CA_PEM
        assert identity.client_cert_file == str(tmp_path / "my.crt")
        assert (identity.client_key_file, identity.token_file) == (
            "/keys/my.key",
            str(tmp_path / "t"),
        )

    def test_inline_data_wins_over_files(self, load_kubeconfig: Callable[..., Connection]) -> None:
        user = {
            "client-certificate-data": encode_base64(CLIENT_CERTIFICATE.certificate),
            "client-key-data": encode_base64(CLIENT_CERTIFICATE.key),
        }
        identity = load_kubeconfig(
            make_kubeconfig({}, user | {"client-certificate": "x", "client-key": "y"})
        ).identity
        assert (identity.client_cert_pem, identity.client_key_pem) == (
            CLIENT_CERTIFICATE.certificate,
            CLIENT_CERTIFICATE.key,
        )
        assert (identity.client_cert_file, identity.client_key_file) == ("", "")

    def test_base64_may_be_folded(self, load_kubeconfig: Callable[..., Connection]) -> None:
        data = base64.encodebytes(CA_PEM).decode()
        assert (
            load_kubeconfig(make_kubeconfig({"certificate-authority-data": data})).ca_pem == CA_PEM
        )

    def test_ca_file_may_contain_comments(self, load_kubeconfig: Callable[..., Connection]) -> None:
        bundle = "# Große Zertifizierungsstelle\n".encode() + CA_PEM + CA_PEM
        assert (
            load_kubeconfig(
                make_kubeconfig({"certificate-authority-data": encode_base64(bundle)})
            ).ca_pem
            == bundle
        )

    def test_scalars_stay_text_and_nulls_are_absent(
        self, load_kubeconfig: Callable[..., Connection]
    ) -> None:
        text = """
            current-context: 1.0
            preferences: null
            clusters:
            - name: 2024-01-01
              cluster: {server: "https://host", insecure-skip-tls-verify: false, extensions: null}
            contexts: [{name: 1.0, context: {cluster: 2024-01-01, user: yes, namespace: 0123}}]
            users: [{name: yes, user: {username: 007, password: 1e10, token: null, exec: null}}]
        """
        connection = load_kubeconfig(text)
        assert connection.namespace == "0123"
        assert (connection.identity.username, connection.identity.password) == ("007", "1e10")

    def test_context_without_a_user_is_anonymous(
        self, load_kubeconfig: Callable[..., Connection]
    ) -> None:
        document = make_kubeconfig({}, {"token": SECRET})
        document["contexts"][0]["context"].pop("user")
        assert load_kubeconfig(document).identity == Identity()

    def test_credentials_are_never_sent_over_http(
        self, load_kubeconfig: Callable[..., Connection]
    ) -> None:
        assert (
            load_kubeconfig(make_kubeconfig({"server": "http://host"}, {"token": SECRET})).identity
            == Identity()
        )

    def test_exec_settings_are_read(self, load_kubeconfig: Callable[..., Connection]) -> None:
        extension = {
            "name": "client.authentication.k8s.io/exec",
            "extension": {"count": 3, "on": True, "none": None, "id": "007"},
        }
        call = {
            "apiVersion": "client.authentication.k8s.io/v1beta1",
            "command": "login",
            "args": ["get", "token"],
            "env": [{"name": "A", "value": "1"}, {"name": "B"}],
            "provideClusterInfo": True,
            "installHint": "brew install login",
        }
        cluster = {"extensions": [{"name": "other", "extension": "x"}, extension]}
        assert load_kubeconfig(
            make_kubeconfig(cluster, {"exec": call})
        ).identity.exec_plugin == ExecPlugin(
            command="login",
            args=("get", "token"),
            env={"A": "1", "B": ""},
            api_version="client.authentication.k8s.io/v1beta1",
            provide_cluster_info=True,
            install_hint="brew install login",
            cluster_config=extension["extension"],
        )

    def test_exec_lists_may_be_null(self, load_kubeconfig: Callable[..., Connection]) -> None:
        call = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "login",
            "args": None,
            "env": None,
        }
        plugin = load_kubeconfig(make_kubeconfig({}, {"exec": call})).identity.exec_plugin
        assert plugin is not None
        assert (plugin.args, plugin.env) == ((), {})

    @pytest.mark.parametrize(
        ("command", "resolved"),
        [
            ("login", "login"),
            ("./login", "{}/login"),
            ("bin/login", "{}/bin/login"),
            ("/a/b", "/a/b"),
        ],
    )
    def test_exec_command_is_on_path_or_relative_to_the_file(
        self,
        load_kubeconfig: Callable[..., Connection],
        tmp_path: Path,
        command: str,
        resolved: str,
    ) -> None:
        call = {"apiVersion": "client.authentication.k8s.io/v1", "command": command}
        plugin = load_kubeconfig(make_kubeconfig({}, {"exec": call})).identity.exec_plugin
        assert plugin is not None
        assert plugin.command == resolved.format(tmp_path)

    def test_errors_in_other_contexts_are_ignored(
        self, load_kubeconfig: Callable[..., Connection]
    ) -> None:
        document = make_kubeconfig()
        document["users"].append({"name": "old", "user": {"auth-provider": {"name": "gcp"}}})
        document["clusters"].append({"name": "lax", "cluster": {"insecure-skip-tls-verify": True}})
        assert load_kubeconfig(document).server == "https://host:6443"

    def test_byte_order_mark_and_utf16_are_accepted(self, tmp_path: Path) -> None:
        file = tmp_path / "config"
        for encoding in ("utf-8-sig", "utf-16"):
            file.write_bytes(yaml.safe_dump(make_kubeconfig()).encode(encoding))
            assert load_config(str(file), environ={}, home=tmp_path).server == "https://host:6443"

    def test_repr_shows_no_secret(self, load_kubeconfig: Callable[..., Connection]) -> None:
        call = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "login",
            "args": [SECRET],
            "env": [{"name": "A", "value": SECRET}],
        }
        key = {
            "client-certificate-data": encode_base64(CLIENT_CERTIFICATE.certificate),
            "client-key-data": encode_base64(CLIENT_CERTIFICATE.key),
        }
        proxy = {"proxy-url": f"http://u:{SECRET}@proxy"}
        for user in (
            {"token": SECRET},
            {"username": "me", "password": SECRET},
            {"exec": call},
            key,
        ):
            shown = repr(load_kubeconfig(make_kubeconfig(proxy, user)))
            assert SECRET not in shown
            assert "PRIVATE KEY" not in shown
