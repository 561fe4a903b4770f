"""Where and who: the order of the sources, the merge, and an error with file and key for everything that can be wrong."""

from __future__ import annotations

import base64
import os
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
from kubewright.kubeconfig import Connection, ExecPlugin, Identity, load
from kubewright.testing.certificates import Authority

SECRET = "s3cr3t-never-shown"
CA = Authority("test").certificate
CLIENT = Authority("test").client("somebody")


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def config(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **context: Any) -> dict[str, Any]:
    """A kubeconfig with one of each, all named "kind"."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "kind",
        "clusters": [{"name": "kind", "cluster": {"server": "https://host:6443"} | (cluster or {})}],
        "users": [{"name": "kind", "user": user or {}}],
        "contexts": [{"name": "kind", "context": {"cluster": "kind", "user": "kind"} | context}],
    }


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[..., Connection]:
    """Loads a kubeconfig, given as text or as a document."""

    def loaded(document: Any, **options: Any) -> Connection:
        file = tmp_path / "config"
        file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        return load(str(file), environ={}, home=tmp_path / "home", **options)

    return loaded


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """A service account's volume."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text(SECRET)
    (folder / "ca.crt").write_bytes(CA)
    (folder / "namespace").write_text("operators\n")
    return folder


IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def write(path: Path, document: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


def server_named(name: str) -> dict[str, Any]:
    return config({"server": f"https://{name}"})


class TestOrder:
    """--kubeconfig, KUBECONFIG, the Pod, ~/.kube/config, --master."""

    def test_explicit_file_comes_first(self, tmp_path: Path, pod: Path) -> None:
        flag, variable = write(tmp_path / "flag", server_named("flag")), write(tmp_path / "env", server_named("env"))
        write(tmp_path / ".kube" / "config", server_named("home"))
        environ = {"KUBECONFIG": str(variable), **IN_POD}
        assert load(str(flag), environ=environ, home=tmp_path, service_account=pod).server == "https://flag"
        assert load(environ=environ, home=tmp_path, service_account=pod).server == "https://env"
        assert load(environ=IN_POD, home=tmp_path, service_account=pod).server == "https://10.0.0.1:443"
        assert load(environ={}, home=tmp_path, service_account=pod).server == "https://home"

    def test_pod_gives_everything(self, tmp_path: Path, pod: Path) -> None:
        connection = load(environ=IN_POD, home=tmp_path, service_account=pod)
        assert connection.identity == Identity(token_file=str(pod / "token"))
        assert connection.ca_pem == CA
        assert connection.namespace == "operators"
        assert connection.source == "the Pod's service account"

    def test_pod_with_ipv6(self, tmp_path: Path, pod: Path) -> None:
        environ = IN_POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"}
        assert load(environ=environ, home=tmp_path, service_account=pod).server == "https://[fd00::1]:443"

    def test_pod_without_authority_and_namespace(self, tmp_path: Path, pod: Path) -> None:
        (pod / "ca.crt").unlink()
        (pod / "namespace").unlink()
        connection = load(environ=IN_POD, home=tmp_path, service_account=pod)
        assert (connection.ca_pem, connection.namespace) == (None, "default")

    def test_pod_with_damaged_authority(self, tmp_path: Path, pod: Path) -> None:
        (pod / "ca.crt").write_text("half a certificate")
        with pytest.raises(ConfigError, match=r"ca\.crt holds no PEM certificate"):
            load(environ=IN_POD, home=tmp_path, service_account=pod)

    def test_pod_needs_its_token(self, tmp_path: Path) -> None:
        write(tmp_path / ".kube" / "config", server_named("home"))
        assert load(environ=IN_POD, home=tmp_path, service_account=tmp_path / "none").server == "https://home"

    def test_a_context_is_never_the_pod(self, tmp_path: Path, pod: Path) -> None:
        write(tmp_path / ".kube" / "config", server_named("home"))
        assert load(context="kind", environ=IN_POD, home=tmp_path, service_account=pod).server == "https://home"

    def test_master_overrides_every_server(self, tmp_path: Path, pod: Path) -> None:
        file = write(tmp_path / "flag", config({"server": ""}, {"token": SECRET}))
        by_file = load(str(file), "https://other/", environ={}, home=tmp_path)
        assert (by_file.server, by_file.identity.token) == ("https://other", SECRET)
        assert load(master="https://other", environ=IN_POD, home=tmp_path, service_account=pod).server == "https://other"

    @pytest.mark.parametrize("master", ["https://alone:6443", "http://127.0.0.1:8001"])
    def test_master_alone(self, tmp_path: Path, master: str) -> None:
        connection = load(master=master, environ={}, home=tmp_path)
        assert connection == Connection(server=master, source="--master")

    def test_nothing_found(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            load(environ={}, home=tmp_path)
        for tried in ("--kubeconfig", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", str(tmp_path / ".kube" / "config")):
            assert tried in str(caught.value)
        assert "***" not in str(caught.value)

    def test_nothing_found_in_a_pod_without_token(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="token is not mounted"):
            load(environ=IN_POD, home=tmp_path, service_account=tmp_path / "none")

    def test_missing_explicit_file(self, tmp_path: Path) -> None:
        write(tmp_path / ".kube" / "config", server_named("home"))
        with pytest.raises(KubeconfigError, match="No such file"):
            load(str(tmp_path / "typo"), environ={}, home=tmp_path)

    def test_missing_files_of_the_variable_do_not_lead_to_another_cluster(self, tmp_path: Path) -> None:
        write(tmp_path / ".kube" / "config", server_named("home"))
        with pytest.raises(ConfigError, match=r"KUBECONFIG names .*typo, which does not exist"):
            load(environ={"KUBECONFIG": str(tmp_path / "typo")}, home=tmp_path)

    def test_empty_variable_counts_as_unset(self, tmp_path: Path) -> None:
        write(tmp_path / ".kube" / "config", server_named("home"))
        assert load(environ={"KUBECONFIG": os.pathsep}, home=tmp_path).server == "https://home"


class TestMerge:
    """Several files in KUBECONFIG, as kubectl reads them."""

    def joined(self, tmp_path: Path, *documents: dict[str, Any]) -> dict[str, str]:
        files = [write(tmp_path / f"{number}" / "config", document) for number, document in enumerate(documents)]
        return {"KUBECONFIG": os.pathsep.join(map(str, [*files, tmp_path / "missing"]))}

    def test_first_to_set_an_entry_wins(self, tmp_path: Path) -> None:
        environ = self.joined(tmp_path, server_named("first"), server_named("second"))
        assert load(environ=environ, home=tmp_path).server == "https://first"

    def test_entries_of_all_files_come_together(self, tmp_path: Path) -> None:
        whole = config({}, {"tokenFile": "token"})
        parts = [{"contexts": whole["contexts"]}, {"clusters": whole["clusters"]}, {"users": whole["users"], "current-context": "kind"}]
        connection = load(environ=self.joined(tmp_path, *parts), home=tmp_path)
        assert connection.server == "https://host:6443"
        assert connection.identity.token_file == str(tmp_path / "2" / "token")
        assert connection.source == f'kubeconfig {tmp_path / "0" / "config"}, context "kind"'

    def test_first_current_context_wins(self, tmp_path: Path) -> None:
        other = config()
        other["current-context"] = "other"
        other["contexts"] = [{"name": "other", "context": {"cluster": "kind", "namespace": "elsewhere"}}]
        environ = self.joined(tmp_path, {"clusters": None}, other, config())
        assert load(environ=environ, home=tmp_path).namespace == "elsewhere"
        assert load(context="kind", environ=environ, home=tmp_path).namespace == "default"

    def test_an_error_names_the_file_of_the_entry(self, tmp_path: Path) -> None:
        whole = config({"server": "nonsense"})
        rest = {key: value for key, value in whole.items() if key != "clusters"}
        with pytest.raises(KubeconfigError) as caught:
            load(environ=self.joined(tmp_path, rest, {"clusters": whole["clusters"]}), home=tmp_path)
        assert caught.value.file == str(tmp_path / "1" / "config")


class TestContents:
    """What a kubeconfig can say."""

    def test_cluster(self, loaded: Callable[..., Connection], tmp_path: Path) -> None:
        cluster = {
            "server": "https://host/k8s/clusters/c-1/",
            "certificate-authority-data": encoded(CA),
            "certificate-authority": "missing",
            "tls-server-name": "kubernetes",
            "proxy-url": f"http://user:{SECRET}@proxy:3128",
        }
        connection = loaded(config(cluster, namespace="here"))
        assert connection.server == "https://host/k8s/clusters/c-1"
        assert (connection.ca_pem, connection.tls_server_name) == (CA, "kubernetes")
        assert (connection.proxy_url, connection.namespace) == (cluster["proxy-url"], "here")
        assert connection.source == f'kubeconfig {tmp_path / "config"}, context "kind"'

    def test_relative_files_belong_to_the_kubeconfig(self, loaded: Callable[..., Connection], tmp_path: Path) -> None:
        (tmp_path / "ca.crt").write_bytes(CA)
        user = {"client-certificate": "my.crt", "client-key": "/keys/my.key", "tokenFile": "t"}
        connection = loaded(config({"certificate-authority": "ca.crt"}, user))
        identity = connection.identity
        assert connection.ca_pem == CA
        assert identity.client_cert_file == str(tmp_path / "my.crt")
        assert (identity.client_key_file, identity.token_file) == ("/keys/my.key", str(tmp_path / "t"))

    def test_inline_data_wins_over_files(self, loaded: Callable[..., Connection]) -> None:
        user = {"client-certificate-data": encoded(CLIENT.certificate), "client-key-data": encoded(CLIENT.key)}
        identity = loaded(config({}, user | {"client-certificate": "x", "client-key": "y"})).identity
        assert (identity.client_cert_pem, identity.client_key_pem) == (CLIENT.certificate, CLIENT.key)
        assert (identity.client_cert_file, identity.client_key_file) == ("", "")

    def test_base64_may_be_folded(self, loaded: Callable[..., Connection]) -> None:
        data = base64.encodebytes(CA).decode()
        assert loaded(config({"certificate-authority-data": data})).ca_pem == CA

    def test_authority_with_remarks(self, loaded: Callable[..., Connection]) -> None:
        bundle = "# Große Zertifizierungsstelle\n".encode() + CA + CA
        assert loaded(config({"certificate-authority-data": encoded(bundle)})).ca_pem == bundle

    def test_scalars_stay_text_and_nulls_are_absent(self, loaded: Callable[..., Connection]) -> None:
        text = """
            current-context: 1.0
            preferences: null
            clusters: [{name: 2024-01-01, cluster: {server: "https://host", insecure-skip-tls-verify: false, extensions: null}}]
            contexts: [{name: 1.0, context: {cluster: 2024-01-01, user: yes, namespace: 0123}}]
            users: [{name: yes, user: {username: 007, password: 1e10, token: null, exec: null}}]
        """
        connection = loaded(text)
        assert connection.namespace == "0123"
        assert (connection.identity.username, connection.identity.password) == ("007", "1e10")

    def test_context_without_user(self, loaded: Callable[..., Connection]) -> None:
        document = config({}, {"token": SECRET})
        document["contexts"][0]["context"].pop("user")
        assert loaded(document).identity == Identity()

    def test_credentials_never_go_to_http(self, loaded: Callable[..., Connection]) -> None:
        assert loaded(config({"server": "http://host"}, {"token": SECRET})).identity == Identity()

    def test_exec_plugin(self, loaded: Callable[..., Connection]) -> None:
        extension = {"name": "client.authentication.k8s.io/exec", "extension": {"count": 3, "on": True, "none": None, "id": "007"}}
        call = {
            "apiVersion": "client.authentication.k8s.io/v1beta1",
            "command": "login",
            "args": ["get", "token"],
            "env": [{"name": "A", "value": "1"}, {"name": "B"}],
            "provideClusterInfo": True,
            "installHint": "brew install login",
        }
        cluster = {"extensions": [{"name": "other", "extension": "x"}, extension]}
        assert loaded(config(cluster, {"exec": call})).identity.exec_plugin == ExecPlugin(
            command="login",
            args=("get", "token"),
            env={"A": "1", "B": ""},
            api_version="client.authentication.k8s.io/v1beta1",
            provide_cluster_info=True,
            install_hint="brew install login",
            cluster_config=extension["extension"],
        )

    def test_exec_lists_may_be_null(self, loaded: Callable[..., Connection]) -> None:
        call = {"apiVersion": "client.authentication.k8s.io/v1", "command": "login", "args": None, "env": None}
        plugin = loaded(config({}, {"exec": call})).identity.exec_plugin
        assert plugin is not None
        assert (plugin.args, plugin.env) == ((), {})

    @pytest.mark.parametrize(
        ("command", "found"), [("login", "login"), ("./login", "{}/login"), ("bin/login", "{}/bin/login"), ("/a/b", "/a/b")]
    )
    def test_exec_command_is_on_path_or_beside_the_file(
        self, loaded: Callable[..., Connection], tmp_path: Path, command: str, found: str
    ) -> None:
        call = {"apiVersion": "client.authentication.k8s.io/v1", "command": command}
        plugin = loaded(config({}, {"exec": call})).identity.exec_plugin
        assert plugin is not None
        assert plugin.command == found.format(tmp_path)

    def test_faults_of_other_contexts_do_not_matter(self, loaded: Callable[..., Connection]) -> None:
        document = config()
        document["users"].append({"name": "old", "user": {"auth-provider": {"name": "gcp"}}})
        document["clusters"].append({"name": "lax", "cluster": {"insecure-skip-tls-verify": True}})
        assert loaded(document).server == "https://host:6443"

    def test_byte_order_mark_and_utf16(self, tmp_path: Path) -> None:
        file = tmp_path / "config"
        for encoding in ("utf-8-sig", "utf-16"):
            file.write_bytes(yaml.safe_dump(config()).encode(encoding))
            assert load(str(file), environ={}, home=tmp_path).server == "https://host:6443"

    def test_repr_shows_no_secret(self, loaded: Callable[..., Connection]) -> None:
        call = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "login",
            "args": [SECRET],
            "env": [{"name": "A", "value": SECRET}],
        }
        key = {"client-certificate-data": encoded(CLIENT.certificate), "client-key-data": encoded(CLIENT.key)}
        proxy = {"proxy-url": f"http://u:{SECRET}@proxy"}
        for user in ({"token": SECRET}, {"username": "me", "password": SECRET}, {"exec": call}, key):
            shown = repr(loaded(config(proxy, user)))
            assert SECRET not in shown
            assert "PRIVATE KEY" not in shown


EXEC: dict[str, Any] = {"apiVersion": "client.authentication.k8s.io/v1", "command": "login"}
OLD_EXEC = EXEC | {"apiVersion": "client.authentication.k8s.io/v1alpha1"}

DOCUMENT_FAULTS: list[tuple[Any, str, str]] = [
    ([1], "", "Expected object"),
    ("just words", "", "Expected object"),
    ({"kind": "Secret"}, "kind", "this is a Secret"),
    ("", "current-context", "is not set"),
    ({"clusters": SECRET}, "clusters", "wrong type"),
    ({"users": [SECRET]}, "users[0]", "wrong type"),
    ({"users": [None]}, "users[0]", "wrong type"),
    ({"users": [{"user": {}}]}, "users[0]", "missing required field name"),
    ({"clusters": [{"name": []}]}, "clusters[0].name", "wrong type"),
    (config() | {"current-context": ""}, "current-context", "contexts are: kind"),
    (config() | {"current-context": "gone"}, "current-context", 'no context "gone". The contexts are: kind'),
    (config() | {"clusters": []}, "contexts[name=kind].context.cluster", 'no cluster "kind". The clusters are: (none)'),
    (config() | {"contexts": [{"name": "kind"}]}, "contexts[name=kind].context.cluster", "names no cluster. The clusters are: kind"),
    (config() | {"users": []}, "contexts[name=kind].context.user", 'no user "kind"'),
]
CLUSTER_FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({"server": [SECRET]}, "server", "wrong type"),
    ({"server": ""}, "server", "is empty"),
    ({"server": "host:6443"}, "server", "https://host:port"),
    ({"server": "https://"}, "server", "https://host:port"),
    ({"server": "https://host:99999"}, "server", "https://host:port"),
    ({"server": "https://ho st"}, "server", "https://host:port"),
    ({"server": "https://[::1"}, "server", "https://host:port"),
    ({"server": f"https://me:{SECRET}@host"}, "server", "credentials belong"),
    ({"server": f"https://host?x={SECRET}"}, "server", "plain address"),
    ({"insecure-skip-tls-verify": True}, "insecure-skip-tls-verify", "set certificate-authority"),
    ({"insecure-skip-tls-verify": "perhaps"}, "insecure-skip-tls-verify", "wrong type"),
    ({"proxy-url": f"socks5://u:{SECRET}@proxy"}, "proxy-url", "SOCKS proxies are not supported"),
    ({"proxy-url": SECRET}, "proxy-url", "not a proxy's address"),
    ({"certificate-authority-data": SECRET}, "certificate-authority-data", "base64"),
    ({"certificate-authority-data": encoded(SECRET.encode())}, "certificate-authority-data", "PEM certificate"),
    ({"certificate-authority-data": encoded(CA.replace(b"MII", b"AAA", 1))}, "certificate-authority-data", "PEM certificate"),
    ({"certificate-authority": "none.crt"}, "certificate-authority", "none.crt cannot be read"),
    ({"certificate-authority": "."}, "certificate-authority", "cannot be read"),
    ({"certificate-authority": "\0"}, "certificate-authority", "not a file name"),
]
USER_FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({"token": {SECRET: 1}}, "token", "has the wrong type"),
    ({"client-certificate-data": "!", "client-key": "x"}, "client-certificate-data", "not valid base64"),
    ({"client-key-data": SECRET + "!", "client-certificate": "x"}, "client-key-data", "is not valid base64"),
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
    ({"exec": EXEC | {"interactiveMode": "Always"}}, "exec.interactiveMode", "a person at the keyboard"),
    ({"exec": EXEC | {"interactiveMode": "Maybe"}}, "exec.interactiveMode", "must be Never"),
]
FAULTS = [
    *DOCUMENT_FAULTS,
    *((config(cluster), f"clusters[name=kind].cluster.{key}", words) for cluster, key, words in CLUSTER_FAULTS),
    *((config({}, user), f"users[name=kind].user.{key}", words) for user, key, words in USER_FAULTS),
]


class TestFaults:
    """Everything wrong names the file, the key and the fix, and shows no secret."""

    @pytest.mark.parametrize(("document", "key", "words"), FAULTS)
    def test_names_file_and_key(self, loaded: Callable[..., Connection], tmp_path: Path, document: Any, key: str, words: str) -> None:
        with pytest.raises(KubeconfigError) as caught:
            loaded(document)
        assert (caught.value.file, caught.value.key) == (str(tmp_path / "config"), key)
        assert words in str(caught.value)
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
    def test_malformed_yaml_names_the_line_and_quotes_nothing(self, loaded: Callable[..., Connection], text: str, where: str) -> None:
        with pytest.raises(KubeconfigError, match=where) as caught:
            loaded(text)
        assert SECRET not in "".join(traceback.format_exception(caught.value))

    def test_unknown_context_asked_for(self, loaded: Callable[..., Connection]) -> None:
        with pytest.raises(KubeconfigError, match=r'there is no context "other"\. The contexts are: kind\.'):
            loaded(config(), context="other")

    def test_unreadable_file(self, tmp_path: Path) -> None:
        with pytest.raises(KubeconfigError, match="Is a directory"):
            load(str(tmp_path), environ={}, home=tmp_path)

    @pytest.mark.parametrize("master", ["host:6443", "ftp://host", "https://", f"https://me:{SECRET}@host"])
    def test_bad_master(self, tmp_path: Path, master: str) -> None:
        with pytest.raises(ConfigError, match="--master must be") as caught:
            load(master=master, environ={}, home=tmp_path)
        assert SECRET not in str(caught.value)

    def test_endless_nesting(self, loaded: Callable[..., Connection]) -> None:
        for text in ("[" * 5000, "&a [*a]", "clusters: &a [*a]", "users: [{name: x, user: {auth-provider: &a [*a]}}]"):
            with pytest.raises(KubeconfigError):
                loaded(text)

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(content=st.one_of(st.binary(max_size=60), st.text(alphabet="ab:-[]{}&*!|>'\"\n ,#?%@~", max_size=60).map(str.encode)))
    def test_any_bytes_are_a_connection_or_a_plain_error(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "config").write_bytes(content)
        with pytest.raises(KubeconfigError):
            load(str(tmp_path / "config"), environ={}, home=tmp_path)

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_any_value_anywhere_is_a_connection_or_a_plain_error(self, tmp_path: Path, data: st.DataObject) -> None:
        document = config(
            {"certificate-authority-data": encoded(CA), "proxy-url": "http://p"}, {"exec": EXEC, "username": "me", "password": "x"}
        )
        values = st.one_of(
            st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=2), st.just({"a": 1})
        )
        part = data.draw(st.sampled_from([document, document["clusters"][0], *(e[k] for k, e in parts_of(document)), EXEC]))
        key = data.draw(st.sampled_from(sorted(part)))
        text = yaml.safe_dump(replaced(document, part, key, data.draw(values)))
        (tmp_path / "config").write_text(text)
        with suppress(KubeconfigError):
            assert load(str(tmp_path / "config"), environ={}, home=tmp_path).server


def parts_of(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(part, document[f"{part}s"][0]) for part in ("cluster", "user", "context")]


def replaced(value: Any, part: Any, key: str, new: Any) -> Any:
    """The document with one key of one of its mappings set to something else."""
    if value is part:
        return {**value, key: new}
    if isinstance(value, dict):
        return {name: replaced(item, part, key, new) for name, item in value.items()}
    return [replaced(item, part, key, new) for item in value] if isinstance(value, list) else value
