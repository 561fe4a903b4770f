"""Which cluster is used: the order of the sources, and the merge of several files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubewright.errors import ConfigError, KubeconfigError
from kubewright.kubeconfig import Connection, Identity, load_config

from .support.credentials import SECRET
from .support.kubeconfigs import CA_PEM, make_kubeconfig

POD_ENVIRON = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def service_account_volume(tmp_path: Path) -> Path:
    """A service account's volume."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text(SECRET)
    (folder / "ca.crt").write_bytes(CA_PEM)
    (folder / "namespace").write_text("operators\n")
    return folder


def write_kubeconfig(path: Path, document: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


def kubeconfig_for_host(name: str) -> dict[str, Any]:
    return make_kubeconfig({"server": f"https://{name}"})


class TestOrder:
    """--kubeconfig, KUBECONFIG, the Pod, ~/.kube/config, --master."""

    def test_environment_and_home_are_those_of_the_process(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_kubeconfig(tmp_path / ".kube" / "config", kubeconfig_for_host("home"))
        monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path)})
        assert load_config().server == "https://home"
        variable = write_kubeconfig(tmp_path / "env", kubeconfig_for_host("env"))
        monkeypatch.setattr(os, "environ", {"KUBECONFIG": str(variable)})
        assert load_config().server == "https://env"

    def test_explicit_file_takes_precedence(
        self, tmp_path: Path, service_account_volume: Path
    ) -> None:
        flag, variable = (
            write_kubeconfig(tmp_path / "flag", kubeconfig_for_host("flag")),
            write_kubeconfig(tmp_path / "env", kubeconfig_for_host("env")),
        )
        write_kubeconfig(tmp_path / ".kube" / "config", kubeconfig_for_host("home"))
        environ = {"KUBECONFIG": str(variable), **POD_ENVIRON}
        assert (
            load_config(
                str(flag), environ=environ, home=tmp_path, service_account=service_account_volume
            ).server
            == "https://flag"
        )
        assert (
            load_config(
                environ=environ, home=tmp_path, service_account=service_account_volume
            ).server
            == "https://env"
        )
        assert (
            load_config(
                environ=POD_ENVIRON, home=tmp_path, service_account=service_account_volume
            ).server
            == "https://10.0.0.1:443"
        )
        assert (
            load_config(environ={}, home=tmp_path, service_account=service_account_volume).server
            == "https://home"
        )

    def test_pod_has_server_token_ca_and_namespace(
        self, tmp_path: Path, service_account_volume: Path
    ) -> None:
        connection = load_config(
            environ=POD_ENVIRON, home=tmp_path, service_account=service_account_volume
        )
        assert connection.identity == Identity(token_file=str(service_account_volume / "token"))
        assert connection.ca_pem == CA_PEM
        assert connection.namespace == "operators"
        assert connection.source == "the Pod's service account"

    def test_pod_with_ipv6(self, tmp_path: Path, service_account_volume: Path) -> None:
        environ = POD_ENVIRON | {"KUBERNETES_SERVICE_HOST": "fd00::1"}
        assert (
            load_config(
                environ=environ, home=tmp_path, service_account=service_account_volume
            ).server
            == "https://[fd00::1]:443"
        )

    def test_pod_without_ca_and_namespace(
        self, tmp_path: Path, service_account_volume: Path
    ) -> None:
        (service_account_volume / "ca.crt").unlink()
        (service_account_volume / "namespace").unlink()
        connection = load_config(
            environ=POD_ENVIRON, home=tmp_path, service_account=service_account_volume
        )
        assert (connection.ca_pem, connection.namespace) == (None, "default")

    def test_pod_with_a_damaged_ca_is_an_error(
        self, tmp_path: Path, service_account_volume: Path
    ) -> None:
        (service_account_volume / "ca.crt").write_text("half a certificate")
        with pytest.raises(ConfigError, match=r"ca\.crt is not a PEM certificate"):
            load_config(environ=POD_ENVIRON, home=tmp_path, service_account=service_account_volume)

    def test_pod_without_a_token_is_not_used(self, tmp_path: Path) -> None:
        write_kubeconfig(tmp_path / ".kube" / "config", kubeconfig_for_host("home"))
        assert (
            load_config(
                environ=POD_ENVIRON, home=tmp_path, service_account=tmp_path / "none"
            ).server
            == "https://home"
        )

    def test_flag_context_excludes_the_pod(
        self, tmp_path: Path, service_account_volume: Path
    ) -> None:
        write_kubeconfig(tmp_path / ".kube" / "config", kubeconfig_for_host("home"))
        assert (
            load_config(
                context="kind",
                environ=POD_ENVIRON,
                home=tmp_path,
                service_account=service_account_volume,
            ).server
            == "https://home"
        )

    def test_master_overrides_every_server(
        self, tmp_path: Path, service_account_volume: Path
    ) -> None:
        file = write_kubeconfig(
            tmp_path / "flag", make_kubeconfig({"server": ""}, {"token": SECRET})
        )
        by_file = load_config(str(file), "https://other/", environ={}, home=tmp_path)
        assert (by_file.server, by_file.identity.token) == ("https://other", SECRET)
        assert (
            load_config(
                master="https://other",
                environ=POD_ENVIRON,
                home=tmp_path,
                service_account=service_account_volume,
            ).server
            == "https://other"
        )

    @pytest.mark.parametrize("master", ["https://alone:6443", "http://127.0.0.1:8001"])
    def test_master_alone_is_enough(self, tmp_path: Path, master: str) -> None:
        connection = load_config(master=master, environ={}, home=tmp_path)
        assert connection == Connection(server=master, source="--master")

    def test_no_source_is_an_error_that_lists_them(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            load_config(environ={}, home=tmp_path)
        for tried in (
            "--kubeconfig",
            "KUBECONFIG",
            "KUBERNETES_SERVICE_HOST",
            str(tmp_path / ".kube" / "config"),
        ):
            assert tried in str(caught.value)
        assert "***" not in str(caught.value)

    def test_error_names_the_missing_token_of_a_pod(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="token is not mounted"):
            load_config(environ=POD_ENVIRON, home=tmp_path, service_account=tmp_path / "none")

    def test_missing_explicit_file_is_an_error(self, tmp_path: Path) -> None:
        write_kubeconfig(tmp_path / ".kube" / "config", kubeconfig_for_host("home"))
        with pytest.raises(KubeconfigError, match="No such file"):
            load_config(str(tmp_path / "typo"), environ={}, home=tmp_path)

    def test_missing_files_of_kubeconfig_are_an_error(self, tmp_path: Path) -> None:
        write_kubeconfig(tmp_path / ".kube" / "config", kubeconfig_for_host("home"))
        with pytest.raises(ConfigError, match=r"KUBECONFIG names .*typo, which does not exist"):
            load_config(environ={"KUBECONFIG": str(tmp_path / "typo")}, home=tmp_path)

    def test_empty_variable_counts_as_unset(self, tmp_path: Path) -> None:
        write_kubeconfig(tmp_path / ".kube" / "config", kubeconfig_for_host("home"))
        assert (
            load_config(environ={"KUBECONFIG": os.pathsep}, home=tmp_path).server == "https://home"
        )


class TestMerge:
    """Several files in KUBECONFIG, as kubectl reads them."""

    def write_files(self, tmp_path: Path, *documents: dict[str, Any]) -> dict[str, str]:
        files = [
            write_kubeconfig(tmp_path / f"{number}" / "config", document)
            for number, document in enumerate(documents)
        ]
        return {"KUBECONFIG": os.pathsep.join(map(str, [*files, tmp_path / "missing"]))}

    def test_first_to_set_an_entry_wins(self, tmp_path: Path) -> None:
        environ = self.write_files(
            tmp_path, kubeconfig_for_host("first"), kubeconfig_for_host("second")
        )
        assert load_config(environ=environ, home=tmp_path).server == "https://first"

    def test_entries_of_all_files_are_merged(self, tmp_path: Path) -> None:
        whole = make_kubeconfig({}, {"tokenFile": "token"})
        parts = [
            {"contexts": whole["contexts"]},
            {"clusters": whole["clusters"]},
            {"users": whole["users"], "current-context": "kind"},
        ]
        connection = load_config(environ=self.write_files(tmp_path, *parts), home=tmp_path)
        assert connection.server == "https://host:6443"
        assert connection.identity.token_file == str(tmp_path / "2" / "token")
        assert connection.source == f'kubeconfig {tmp_path / "0" / "config"}, context "kind"'

    def test_first_current_context_wins(self, tmp_path: Path) -> None:
        other = make_kubeconfig()
        other["current-context"] = "other"
        other["contexts"] = [
            {"name": "other", "context": {"cluster": "kind", "namespace": "elsewhere"}}
        ]
        environ = self.write_files(tmp_path, {"clusters": None}, other, make_kubeconfig())
        assert load_config(environ=environ, home=tmp_path).namespace == "elsewhere"
        assert load_config(context="kind", environ=environ, home=tmp_path).namespace == "default"

    def test_error_names_the_file_of_the_entry(self, tmp_path: Path) -> None:
        whole = make_kubeconfig({"server": "nonsense"})
        rest = {key: value for key, value in whole.items() if key != "clusters"}
        with pytest.raises(KubeconfigError) as caught:
            load_config(
                environ=self.write_files(tmp_path, rest, {"clusters": whole["clusters"]}),
                home=tmp_path,
            )
        assert caught.value.file == str(tmp_path / "1" / "config")
