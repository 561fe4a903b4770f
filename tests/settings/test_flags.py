"""The original operators' flags, and the vCenters that flags, environment and files configure."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.errors import ConfigError
from kubewright.flags import FlagError, HelpRequested, parse_command_line
from vsphere_operators.settings.flags import Settings
from vsphere_operators.vcenters.config import NamespaceSelector, PlacementDefaults, VCenterConfig
from vsphere_operators.vcenters.namespace_rules import _match_namespace, choose_vcenter
from vsphere_operators.vsphere.address import Address
from vsphere_operators.vsphere.credentials import Credentials, DirectoryCredentials
from vsphere_operators.vsphere.faults import Denied

CANARY = "hunter2-canary"
GOVMOMI_ENVIRON = {
    "GOVMOMI_URL": "vc.example.com",
    "GOVMOMI_USERNAME": "ann",
    "GOVMOMI_PASSWORD": CANARY,
}
VC_ENVIRON = {"VC_HOST": "vc.example.com", "VC_USER": "ann", "VC_PASS": CANARY}


def parse_settings(*argv: str, **environ: str) -> Settings:
    return parse_command_line(Settings, argv, environ)


def test_defaults() -> None:
    settings = parse_settings()
    assert (
        settings.metrics_bind_address,
        settings.leader_election,
        settings.insecure,
        settings.health_probe_bind_address,
    ) == (
        ":8080",
        False,
        False,
        "",
    )


@pytest.mark.parametrize(
    "argv", [["-insecure"], ["--insecure"], ["-insecure=true"], ["--insecure=1"]]
)
def test_insecure_as_existing_manifests_write_it(argv: list[str]) -> None:
    assert parse_settings(*argv).insecure


def test_allowed_templates_are_full_paths() -> None:
    paths = ("/DC0/vm/golden", "/DC1/vm/a, b")
    flags = [f"-vmgroup-allowed-template={path}" for path in paths]
    assert parse_settings(*flags).allowed_templates == paths
    for wrong in ("golden", "/", ""):
        with pytest.raises(FlagError, match="must be a full inventory path, such as /DC0/vm"):
            parse_settings(f"-vmgroup-allowed-template={wrong}")


@pytest.mark.parametrize("name", ["-metrics-addr", "--metrics-addr", "--metrics-bind-address"])
def test_metrics_address_has_two_names(name: str) -> None:
    assert parse_settings(f"{name}=:9090").metrics_bind_address == ":9090"
    assert parse_settings(name, ":9090").metrics_bind_address == ":9090"


@pytest.mark.parametrize("name", ["--enable-leader-election", "--leader-elect", "-leader-elect"])
def test_leader_election_has_two_names(name: str) -> None:
    assert parse_settings(name).leader_election


def test_flags_of_the_original_operators_still_parse() -> None:
    settings = parse_settings(
        "--metrics-addr=127.0.0.1:8080",
        "--enable-leader-election",
        "-insecure",
        "--kubeconfig",
        "/x",
        "--master=https://m",
    )
    assert (settings.kubeconfig, settings.master) == ("/x", "https://m")


def test_flag_takes_precedence_over_its_variable() -> None:
    assert parse_settings(METRICS_ADDR=":1").metrics_bind_address == ":1"
    assert parse_settings("--metrics-addr=:2", METRICS_ADDR=":1").metrics_bind_address == ":2"


def test_watch_namespaces_is_a_list() -> None:
    assert parse_settings("--watch-namespaces=a, b,").to_options("m").watch_namespaces == ("a", "b")


def test_unknown_flag_suggests_a_name() -> None:
    with pytest.raises(FlagError, match=r"-metrics-adr.*metrics-addr"):
        parse_settings("--metrics-adr=:1")


@pytest.mark.parametrize(
    ("flag", "environ", "insecure"),
    [
        ("", {"GOVMOMI_INSECURE": "true"}, True),
        ("", {"VC_INSECURE": "1"}, True),
        ("", {"GOVMOMI_INSECURE": "", "VC_INSECURE": ""}, False),
        ("", {"GOVMOMI_INSECURE": "false", "VC_INSECURE": "true"}, False),
        ("-insecure=false", {"GOVMOMI_INSECURE": "true", "VC_INSECURE": "true"}, False),
        ("-insecure", {"GOVMOMI_INSECURE": "false"}, True),
    ],
)
def test_insecure_flag_takes_precedence_over_the_environment(
    flag: str, environ: dict[str, str], insecure: bool
) -> None:
    assert parse_settings(*filter(None, [flag]), **environ).insecure is insecure


def test_intervals_have_defaults_and_flags() -> None:
    settings = parse_settings()
    assert (
        settings.stats_interval_seconds,
        settings.stats_change_percent,
        settings.disk_refresh_seconds,
        settings.tag_refresh_seconds,
        settings.load_timeout_seconds,
        settings.missing_vm_timeout_seconds,
    ) == (60, 5, 60, 300, 600, 300)
    settings = parse_settings(
        "-stats-interval=20s",
        "-stats-change-percent=2.5",
        "-disk-refresh-interval=2m",
        "--tag-refresh-interval",
        "1h",
        "-vcenter-load-timeout=20m",
    )
    assert (
        settings.stats_interval_seconds,
        settings.stats_change_percent,
        settings.disk_refresh_seconds,
        settings.tag_refresh_seconds,
        settings.load_timeout_seconds,
    ) == (20, 2.5, 120, 3600, 1200)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            "-inventory-metrics-all-vms",
            'invalid value "true" for flag -inventory-metrics-all-vms: requires '
            "-inventory-metrics, which is off",
        ),
        (
            "-inventory-metrics-limit=0",
            'invalid value "0" for flag -inventory-metrics-limit: must be at least 1',
        ),
        (
            "-stats-interval=0",
            'invalid value "0s" for flag -stats-interval: must be at least 1s',
        ),
        (
            "-disk-refresh-interval=500ms",
            'invalid value "500ms" for flag -disk-refresh-interval: must be at least 1s',
        ),
        (
            "-vmgroup-missing-vm-timeout=0s",
            'invalid value "0s" for flag -vmgroup-missing-vm-timeout: must be at least 1s',
        ),
        (
            "-tag-refresh-interval=-5m",
            'invalid value "-5m0s" for flag -tag-refresh-interval: must be at least 1s',
        ),
        (
            "-vcenter-load-timeout=100ms",
            'invalid value "100ms" for flag -vcenter-load-timeout: must be at least 1s',
        ),
        (
            "-stats-change-percent=101",
            'invalid value "101" for flag -stats-change-percent: must be from 0 to 100',
        ),
        (
            "-stats-change-percent=-1",
            'invalid value "-1" for flag -stats-change-percent: must be from 0 to 100',
        ),
    ],
)
def test_invalid_interval_is_rejected(argument: str, message: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse_settings(argument)
    assert str(caught.value) == message


def test_help_names_every_variable_and_flag() -> None:
    with pytest.raises(HelpRequested) as caught:
        parse_settings("-help", **GOVMOMI_ENVIRON)
    names = [
        *GOVMOMI_ENVIRON,
        *VC_ENVIRON,
        "GOVMOMI_HOSTNAME",
        "GOVMOMI_INSECURE",
        "VC_INSECURE",
        "VC_CA_FILE",
        "-vcenters",
        "-vcenter-credentials",
    ]
    assert [name for name in names if name not in caught.value.usage] == []
    assert CANARY not in caught.value.usage


class ResolvedSettings:
    """Settings with the vCenters that they configure, and the warnings."""

    def __init__(self, *argv: str, **environ: str) -> None:
        self.warnings: list[str] = []
        self.settings = parse_settings(*argv, **environ)
        self.vcenter_configs = self.settings.read_vcenter_configs(self.warnings.append)
        assert CANARY not in repr(self.settings) + repr(self.vcenter_configs) + "".join(
            self.warnings
        )


def find_config_error(*argv: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        ResolvedSettings(*argv, **environ)
    assert CANARY not in str(caught.value) + repr(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "environ",
    [
        GOVMOMI_ENVIRON,
        VC_ENVIRON,
        GOVMOMI_ENVIRON | VC_ENVIRON,
        {
            "GOVMOMI_HOSTNAME": "vc.example.com",
            "GOVMOMI_USERNAME": "ann",
            "GOVMOMI_PASSWORD": CANARY,
        },
        GOVMOMI_ENVIRON | {"GOVMOMI_HOSTNAME": "vc.example.com"},
        GOVMOMI_ENVIRON | {"VC_HOST": "https://vc.example.com/sdk"},
        VC_ENVIRON | {"GOVMOMI_URL": "https://vc.example.com:443"},
        VC_ENVIRON | {"GOVMOMI_URL": "", "GOVMOMI_USERNAME": "", "GOVMOMI_PASSWORD": ""},
        {"GOVMOMI_URL": "vc.example.com", "VC_USER": "ann", "VC_PASS": CANARY},
        {
            "GOVMOMI_URL": " vc.example.com\n",
            "GOVMOMI_USERNAME": "ann\n",
            "GOVMOMI_PASSWORD": f"{CANARY}\n",
        },
    ],
)
def test_either_set_of_variables_configures_the_default(environ: dict[str, str]) -> None:
    resolved = ResolvedSettings(**environ)
    assert resolved.vcenter_configs == (
        VCenterConfig("vc.example.com", Address("vc.example.com"), username="ann", password=CANARY),
    )
    assert resolved.vcenter_configs[0].build_credential_source().read() == Credentials(
        "ann", CANARY
    )
    assert _match_namespace(resolved.vcenter_configs[0], "anything", {}) is not None
    assert resolved.warnings == []


@pytest.mark.parametrize(
    ("environ", "host", "pairs"),
    [
        (
            GOVMOMI_ENVIRON | VC_ENVIRON | {"VC_HOST": "other"},
            "vc.example.com",
            "GOVMOMI_URL and VC_HOST differ; GOVMOMI_URL, GOVMOMI_USERNAME",
        ),
        (
            GOVMOMI_ENVIRON | {"VC_PASS": CANARY + "2"},
            "vc.example.com",
            "GOVMOMI_PASSWORD and VC_PASS differ; GOVMOMI_URL",
        ),
        (
            VC_ENVIRON | {"GOVMOMI_HOSTNAME": "other"},
            "vc.example.com",
            "GOVMOMI_HOSTNAME and VC_HOST differ; VC_HOST, VC_USER, VC_PASS are used",
        ),
    ],
)
def test_two_sets_that_differ_cause_a_warning(
    environ: dict[str, str], host: str, pairs: str
) -> None:
    resolved = ResolvedSettings(**environ)
    assert [config.address.host for config in resolved.vcenter_configs] == [host]
    assert len(resolved.warnings) == 1
    assert pairs in resolved.warnings[0]


@pytest.mark.parametrize(
    ("environ", "missing"),
    [
        (
            {"GOVMOMI_URL": "vc"},
            "GOVMOMI_USERNAME (or VC_USER), GOVMOMI_PASSWORD (or VC_PASS) not set",
        ),
        ({"VC_HOST": "vc", "VC_USER": "ann"}, "incomplete: GOVMOMI_PASSWORD (or VC_PASS) not set"),
        (
            {"VC_PASS": CANARY},
            "incomplete: GOVMOMI_URL (or VC_HOST), GOVMOMI_USERNAME (or VC_USER) not set",
        ),
        (
            {"GOVMOMI_URL": "one", "VC_HOST": "two", "GOVMOMI_USERNAME": "ann", "VC_PASS": CANARY},
            "incomplete: GOVMOMI_PASSWORD (or VC_PASS) not set",
        ),
    ],
)
def test_missing_variables_are_named(environ: dict[str, str], missing: str) -> None:
    message = find_config_error(**environ)
    assert missing in message
    assert "Set the missing variables (in a cluster, as keys of Secret vc-creds)" in message


@pytest.mark.parametrize(
    "server",
    ["http://vc", f"root:{CANARY}@vc", f"https://root:{CANARY}@vc/sdk", f"root:{CANARY}", "a b"],
)
def test_invalid_address_is_rejected_and_not_quoted(server: str) -> None:
    assert find_config_error(**GOVMOMI_ENVIRON | {"GOVMOMI_URL": server}).startswith(
        "GOVMOMI_URL is not the address of a vCenter: must be a host"
    )


def test_tls_flags_apply_to_the_address(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.crt"
    bundle.touch()
    assert ResolvedSettings(f"-vcenter-ca-file={bundle}", **GOVMOMI_ENVIRON).vcenter_configs[
        0
    ].address == Address("vc.example.com", ca_file=str(bundle))
    assert ResolvedSettings(**GOVMOMI_ENVIRON, VC_CA_FILE=str(bundle)).vcenter_configs[
        0
    ].address.ca_file == str(bundle)
    assert ResolvedSettings("-insecure", **GOVMOMI_ENVIRON).vcenter_configs[0].address.insecure
    missing = ResolvedSettings("-vcenter-ca-file=/nowhere/ca.crt", **GOVMOMI_ENVIRON).warnings
    assert missing == [
        "vCenter vc.example.com: the CA bundle /nowhere/ca.crt does not exist (yet); "
        "connections fail until it does"
    ]


def write_secret(directory: Path, **files: str) -> str:
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text)
    return str(directory)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"GOVMOMI_URL": "other", "GOVMOMI_USERNAME": "bob"},
        GOVMOMI_ENVIRON | {"GOVMOMI_URL": "other"},
    ],
)
@pytest.mark.parametrize("key", ["GOVMOMI_URL", "GOVMOMI_HOSTNAME", "VC_HOST"])
def test_directory_takes_precedence_over_the_environment(
    tmp_path: Path, key: str, environ: dict[str, str]
) -> None:
    directory = write_secret(tmp_path, **{key: "vc.example.com\n"}, VC_USER="ann", VC_PASS=CANARY)
    resolved = ResolvedSettings("-vcenter-credentials", directory, **environ)
    assert resolved.vcenter_configs == (
        VCenterConfig("vc.example.com", Address("vc.example.com"), credentials_directory=directory),
    )
    source = resolved.vcenter_configs[0].build_credential_source()
    assert isinstance(source, DirectoryCredentials)
    assert source.read() == Credentials("ann", CANARY)
    write_secret(tmp_path, VC_PASS="changed")
    assert source.read().password == "changed"


def test_environment_has_the_server_if_the_directory_has_none(tmp_path: Path) -> None:
    directory = write_secret(tmp_path, VC_USER="ann", VC_PASS=CANARY, GOVMOMI_URL="")
    assert (
        ResolvedSettings(f"-vcenter-credentials={directory}", VC_HOST="vc")
        .vcenter_configs[0]
        .address.host
        == "vc"
    )
    resolved = ResolvedSettings(
        f"-vcenter-credentials={directory}", VC_HOST="vc", GOVMOMI_URL="vc2"
    )
    assert resolved.vcenter_configs[0].address.host == "vc2"
    assert resolved.warnings == [
        "the environment names two vCenters: GOVMOMI_URL and VC_HOST differ; GOVMOMI_URL is used"
    ]


def test_missing_directory_causes_a_warning_and_is_read_later(tmp_path: Path) -> None:
    directory = str(tmp_path / "later")
    resolved = ResolvedSettings(f"-vcenter-credentials={directory}", VC_HOST="vc")
    assert resolved.warnings == [
        f"vCenter vc: the credentials directory {directory} does not exist (yet); "
        "logins fail until it does"
    ]
    source = resolved.vcenter_configs[0].build_credential_source()
    with pytest.raises(Denied):
        source.read()
    write_secret(tmp_path / "later", VC_USER="ann", VC_PASS=CANARY)
    assert source.read().username == "ann"


def test_load_timeout_applies_to_every_vcenter(tmp_path: Path) -> None:
    flag, directory = "-vcenter-load-timeout=20m", str(tmp_path)
    resolved = (
        ResolvedSettings(flag, **GOVMOMI_ENVIRON),
        ResolvedSettings(flag, f"-vcenter-credentials={directory}", VC_HOST="vc"),
    )
    assert [item.vcenter_configs[0].load_timeout_seconds for item in resolved] == [1200, 1200]


def test_directory_without_a_server_causes_a_warning(tmp_path: Path) -> None:
    assert (ResolvedSettings().vcenter_configs, ResolvedSettings().warnings) == ((), [])
    resolved = ResolvedSettings(f"-vcenter-credentials={tmp_path}")
    assert resolved.vcenter_configs == ()
    assert "Put it into GOVMOMI_URL or VC_HOST; the manager reloads it" in resolved.warnings[0]


def test_invalid_server_file_is_named_and_not_quoted(tmp_path: Path) -> None:
    directory = write_secret(tmp_path, GOVMOMI_URL=f"https://root:{CANARY}@vc")
    assert find_config_error(f"-vcenter-credentials={directory}").startswith(
        f"{directory}/GOVMOMI_URL is not the address of a vCenter: must be a host"
    )
    (tmp_path / "GOVMOMI_URL").write_bytes(b"\xff\xfe")
    assert "is not the address of a vCenter" in find_config_error(
        f"-vcenter-credentials={directory}"
    )
    (tmp_path / "GOVMOMI_URL").unlink()
    (tmp_path / "GOVMOMI_URL").mkdir()
    assert (
        find_config_error(f"-vcenter-credentials={directory}")
        == f"-vcenter-credentials: {directory}/GOVMOMI_URL cannot be read: Is a directory"
    )


VCENTERS_YAML = """\
vcenters:
  - name: west
    server: vc-west.example.com:8443
    credentials: west
    ca: west/ca.crt
    defaults: {datacenter: DC0, resourcePool: small}
    namespaces: {names: ["team-a-*", west], labels: {vcenter: west}}
  - name: east
    server: https://vc-east.example.com/sdk
    credentials: /nowhere/east
    insecure: false
    namespaces: {names: [east]}
"""


@pytest.fixture
def vcenters_file(tmp_path: Path) -> str:
    write_secret(tmp_path / "west", **{"ca.crt": "", "username": "ann", "password": CANARY})
    (tmp_path / "vcenters.yaml").write_text(VCENTERS_YAML)
    return str(tmp_path / "vcenters.yaml")


def test_file_of_several_vcenters(vcenters_file: str, tmp_path: Path) -> None:
    resolved = ResolvedSettings("-vcenters", vcenters_file)
    assert resolved.vcenter_configs == (
        VCenterConfig(
            "west",
            Address("vc-west.example.com", 8443, ca_file=str(tmp_path / "west/ca.crt")),
            credentials_directory=str(tmp_path / "west"),
            defaults=PlacementDefaults(datacenter="DC0", resourcePool="small"),
            namespaces=NamespaceSelector(("team-a-*", "west"), {"vcenter": "west"}),
        ),
        VCenterConfig(
            "east",
            Address("vc-east.example.com"),
            credentials_directory="/nowhere/east",
            namespaces=NamespaceSelector(("east",)),
        ),
    )
    assert resolved.warnings == [
        "vCenter east: the credentials directory /nowhere/east does not exist (yet); "
        "logins fail until it does"
    ]
    assert resolved.vcenter_configs[0].build_credential_source().read().username == "ann"


def test_flags_are_the_defaults_of_an_entry(vcenters_file: str) -> None:
    west, east = ResolvedSettings("-vcenters", vcenters_file, "-insecure").vcenter_configs
    assert (west.address.insecure, east.address.insecure) == (True, False)
    _, east = ResolvedSettings(
        "-vcenters", vcenters_file, "-vcenter-ca-file=/nowhere/ca.crt"
    ).vcenter_configs
    assert east.address.ca_file == "/nowhere/ca.crt"


def test_vcenter_of_the_environment_is_the_default(vcenters_file: str) -> None:
    vcenters = ResolvedSettings("-vcenters", vcenters_file, **GOVMOMI_ENVIRON).vcenter_configs
    assert [config.name for config in vcenters] == ["west", "east", "vc.example.com"]
    chosen = [
        choose_vcenter(vcenters, name, labels)
        for name, labels in [("team-a-1", {}), ("east", {}), ("x", {"vcenter": "west"}), ("x", {})]
    ]
    assert [config.name for config in chosen if config] == [
        "west",
        "east",
        "west",
        "vc.example.com",
    ]
    assert choose_vcenter(vcenters[:2], "x", {}) is None


def test_conflict_with_the_environment_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "vcenters.yaml"
    file.write_text(f"vcenters: [{{name: west, server: vc, credentials: {tmp_path}}}]")
    assert find_config_error("-vcenters", str(file), **GOVMOMI_ENVIRON) == (
        f'two vCenters would be the default for all other namespaces: "west" of {file}, which '
        "has no `namespaces`, and vc.example.com of the environment or -vcenter-credentials. "
        'Give "west" its namespaces, or remove the other.'
    )
    file.write_text(
        f"vcenters: [{{name: vc, server: vc, credentials: {tmp_path}, namespaces: {{names: [a]}}}}]"
    )
    assert "rename the one in the file" in find_config_error(
        "-vcenters", str(file), **GOVMOMI_ENVIRON | {"GOVMOMI_URL": "vc"}
    )


def test_invalid_file_is_reported_with_the_line(tmp_path: Path) -> None:
    file = tmp_path / "vcenters.yaml"
    file.write_text(f"vcenters:\n  - name: west\n    server: vc\n    password: {CANARY}\n")
    assert find_config_error("-vcenters", str(file)).startswith(
        f"{file} line 4: vcenters[0]: there is no key `password`"
    )


def make_config(name: str, *globs: str, labels: Mapping[str, str] | None = None) -> VCenterConfig:
    return VCenterConfig(
        name, Address("vc"), namespaces=NamespaceSelector(globs, dict(labels or {}))
    )


def test_most_specific_rule_wins() -> None:
    exact, glob, labels, default = (
        make_config("n", "a-b"),
        make_config("g", "a-*"),
        make_config("l", labels={"x": "1"}),
        VCenterConfig("r", Address("vc")),
    )
    configs = [default, labels, glob, exact]
    for winner in (exact, glob, labels, default):
        assert choose_vcenter(configs, "a-b", {"x": "1", "y": "2"}) is winner
        configs.remove(winner)
    assert choose_vcenter(configs, "a-b", {"x": "1"}) is None


def test_two_rules_of_one_rank_are_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        choose_vcenter(
            [
                make_config("west", "team-*"),
                make_config("east", "*-a"),
                make_config("far", labels={"a": "b"}),
            ],
            "team-a",
            {"a": "b"},
        )
    assert str(caught.value).startswith(
        'Namespace "team-a" belongs to more than one vCenter: '
        '"west" and "east" claim it by a glob in `names`.'
    )


def test_all_labels_must_match() -> None:
    both = make_config("w", labels={"a": "1", "b": "2"})
    assert _match_namespace(both, "x", {"a": "1", "b": "2", "c": "3"}) is not None
    assert _match_namespace(both, "x", {"a": "1"}) is None
    assert _match_namespace(both, "x", {"a": "1", "b": "3"}) is None


NAMES = st.sampled_from(["a", "a-b", "a-c", "b", "b-c"])
GLOBS = st.sampled_from(["a", "a-b", "b", "a*", "a-?", "*", "[ab]", "z*"])
LABELS = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]))
NAMESPACE_RULES = st.none() | st.builds(
    NamespaceSelector, st.lists(GLOBS, max_size=3).map(tuple), LABELS
)


def has_labels(labels: Mapping[str, str], required: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in required.items())


@given(st.lists(NAMESPACE_RULES, max_size=4), NAMES, LABELS)
def test_choose_vcenter_agrees_with_the_rules(
    rules: list[NamespaceSelector | None], namespace: str, labels: dict[str, str]
) -> None:
    configs = [
        VCenterConfig(str(number), Address("vc"), namespaces=rule)
        for number, rule in enumerate(rules)
    ]
    tiers = [
        [
            config
            for config in configs
            if config.namespaces and namespace in config.namespaces.names
        ],
        [
            config
            for config in configs
            if config.namespaces
            and any(fnmatchcase(namespace, glob) for glob in config.namespaces.names)
        ],
        [
            config
            for config in configs
            if config.namespaces
            and config.namespaces.labels
            and has_labels(labels, config.namespaces.labels)
        ],
        [config for config in configs if config.namespaces is None],
    ]
    first = next((tier for tier in tiers if tier), [])
    if len(first) > 1:
        with pytest.raises(
            ConfigError, match=f'Namespace "{namespace}" belongs to more than one vCenter'
        ):
            choose_vcenter(configs, namespace, labels)
    else:
        assert choose_vcenter(configs, namespace, labels) is (first[0] if first else None)
    assert {config.name for tier in tiers for config in tier} == {
        config.name for config in configs if _match_namespace(config, namespace, labels) is not None
    }
