"""The file of vCenters: its fields, and every error with its line."""

from __future__ import annotations

import string
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from kubewright.errors import ConfigError
from vsphere_operators.vcenters.config import (
    VCENTERS_FORMAT,
    NamespaceSelector,
    PlacementDefaults,
    VCenterEntry,
    parse_server_address,
)
from vsphere_operators.yamlfile import MAX_FILE_BYTES

CANARY = "hunter2-canary"

FULL_YAML = """\
# Two sites.
vcenters:
  - name: west
    server: vc-west.example.com
    credentials: /etc/vcenters/west
    ca: /etc/vcenters/west/ca.crt
    insecure: false
    defaults: {datacenter: DC0, cluster: C0, resourcePool: small, folder: vms, datastore: fast}
    namespaces: {names: ["team-a-*", "west"], labels: {vcenter: west}}
  - name: rest
    server: 192.0.2.7
    credentials: rest
"""


def parse_entries(text: str) -> tuple[VCenterEntry, ...]:
    return VCENTERS_FORMAT.decode("vcenters.yaml", text.encode()).vcenters


def find_config_error(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_entries(text)
    assert CANARY not in str(caught.value) + repr(caught.value)
    assert caught.value.__cause__ is None
    return str(caught.value)


def make_yaml(*items: str) -> str:
    """A file with these entries; line 1 is `vcenters:`, the first entry begins in line 2."""
    return "vcenters:\n" + "".join(
        "  - " + dedent(item).strip("\n").replace("\n", "\n    ") + "\n" for item in items
    )


WEST_ENTRY = "name: west\nserver: vc\ncredentials: c"


def test_all_fields_are_read() -> None:
    west, rest = parse_entries(FULL_YAML)
    assert west == VCenterEntry(
        "west",
        "vc-west.example.com",
        "/etc/vcenters/west",
        "/etc/vcenters/west/ca.crt",
        False,
        PlacementDefaults("DC0", "C0", "small", "vms", "fast"),
        NamespaceSelector(("team-a-*", "west"), {"vcenter": "west"}),
    )
    assert rest == VCenterEntry("rest", "192.0.2.7", "rest", "", UNSET, PlacementDefaults(), UNSET)


def test_documentation_example_is_valid() -> None:
    page = (Path(__file__).parents[2] / "docs/howto/several-vcenters.md").read_text()
    example = page.split("```yaml vcenters.yaml\nvcenters:", 1)[1].split("```", 1)[0]
    west, east, central = parse_entries(f"vcenters:{example}")
    assert (west.name, west.defaults.datacenter, east.server) == (
        "west",
        "DC0",
        "https://vc-east.example.com:8443/sdk",
    )
    assert central.namespaces is UNSET


def test_json_is_yaml() -> None:
    assert [
        entry.name
        for entry in parse_entries(
            '{"vcenters": [{"name": "w", "server": "vc", "credentials": "c"}]}'
        )
    ] == ["w"]


TYPE_ERRORS = [
    (
        "",
        "vcenters.yaml line 1: the file is empty; it must begin with `vcenters:` and a list below "
        "it",
    ),
    ("# nothing\n", "vcenters.yaml line 1: the file is empty"),
    ("- name: x\n", "vcenters.yaml line 1: expected a mapping, got a list"),
    ("7\n", "vcenters.yaml line 1: expected a mapping, got a number"),
    ("{}\n", "vcenters.yaml line 1: `vcenters` is missing"),
    (
        "# one\nvcenters:\n",
        "vcenters.yaml line 2: vcenters: expected a list, got nothing; write a value, or leave "
        "the key out",
    ),
    ("vcenters: {name: x}\n", "vcenters.yaml line 1: vcenters: expected a list, got a mapping"),
    (
        "vcenters: []\n",
        "vcenters.yaml line 1: vcenters: the list is empty; add a vCenter, or omit -vcenters",
    ),
    ("vcenters:\n  - \n", "vcenters.yaml line 2: vcenters[0]: expected a mapping, got nothing"),
    (
        "vcenters:\n  - west\n",
        "vcenters.yaml line 2: vcenters[0]: expected a mapping, got a string",
    ),
    (
        make_yaml("name: west\nserver: vc"),
        "vcenters.yaml line 2: vcenters[0]: `credentials` is missing",
    ),
    (
        make_yaml("server: vc\ncredentials: c"),
        "vcenters.yaml line 2: vcenters[0]: `name` is missing",
    ),
    (
        make_yaml(WEST_ENTRY, "name: a\nserver: 7\ncredentials: c"),
        "vcenters.yaml line 6: vcenters[1].server: expected a string, got a number; put it in "
        "quotes",
    ),
    (
        make_yaml("name: 2026-01-01\nserver: vc\ncredentials: c"),
        "line 2: vcenters[0].name: expected a string, got a date; put it in quotes",
    ),
    (
        make_yaml("name: no\nserver: vc\ncredentials: c"),
        "line 2: vcenters[0].name: expected a string, got true or false; put it in quotes",
    ),
    (
        make_yaml("name: west\nserver: [vc]\ncredentials: c"),
        "line 3: vcenters[0].server: expected a string, got a list",
    ),
    (
        make_yaml("name: west\nserver: !secret vc\ncredentials: c"),
        "line 3: vcenters[0].server: expected a string, got a value with a tag",
    ),
    (
        make_yaml("name: west\nserver: vc\ncredentials:"),
        "line 4: vcenters[0].credentials: expected a string, got nothing; write a value",
    ),
    (
        make_yaml(f'{WEST_ENTRY}\ninsecure: "no"'),
        "line 5: vcenters[0].insecure: expected true or false, got a string",
    ),
    (
        make_yaml(f"{WEST_ENTRY}\ninsecure:"),
        "line 5: vcenters[0].insecure: expected true or false, got nothing",
    ),
    (
        make_yaml(f"{WEST_ENTRY}\ndefaults: DC0"),
        "line 5: vcenters[0].defaults: expected a mapping, got a string",
    ),
    (
        make_yaml(f"{WEST_ENTRY}\ndefaults:\n  folder: a\n  cluster: 1.5"),
        "line 7: vcenters[0].defaults.cluster: expected a string, got a number",
    ),
    (
        make_yaml(f"{WEST_ENTRY}\nnamespaces:"),
        "line 5: vcenters[0].namespaces: expected a mapping, got nothing",
    ),
    (
        make_yaml(f"{WEST_ENTRY}\nnamespaces:\n  names: team-a"),
        "line 6: vcenters[0].namespaces.names: expected a list, got a string",
    ),
    (
        make_yaml(f"{WEST_ENTRY}\nnamespaces:\n  names:\n    - a\n    - 1"),
        "line 8: vcenters[0].namespaces.names[1]: expected a string, got a number",
    ),
    (
        make_yaml(f"{WEST_ENTRY}\nnamespaces:\n  labels: [a]"),
        "line 6: vcenters[0].namespaces.labels: expected a mapping, got a list",
    ),
    (
        make_yaml(f"{WEST_ENTRY}\nnamespaces:\n  labels:\n    ok: fine\n    example.com/zone: 1"),
        "vcenters.yaml line 8: vcenters[0].namespaces.labels.example.com/zone: expected a string, "
        "got a number; put it in quotes",
    ),
    (
        make_yaml(f"{WEST_ENTRY}\nnamespaces:\n  labels:\n    a:"),
        "line 7: vcenters[0].namespaces.labels.a: expected a string, got nothing",
    ),
]

KEY_ERRORS = [
    (
        make_yaml(f"{WEST_ENTRY}\npassword: {CANARY}"),
        "vcenters.yaml line 5: vcenters[0]: there is no key `password`; "
        "the keys here are name, server, credentials, ca, insecure, defaults, namespaces",
    ),
    (
        f"vcenters: []\nvcenter: {CANARY}\n",
        "vcenters.yaml line 2: there is no key `vcenter`; the keys here are vcenters",
    ),
    (
        make_yaml(f"{WEST_ENTRY}\ndefaults:\n  resource_pool: x"),
        "line 6: vcenters[0].defaults: there is no key `resource_pool`; "
        "the keys here are datacenter, cluster, resourcePool, folder, datastore",
    ),
    (
        make_yaml(f"{WEST_ENTRY}\nnamespaces: {{globs: []}}"),
        "line 5: vcenters[0].namespaces: there is no key `globs`; the keys here are names, labels",
    ),
    (
        make_yaml(f"{WEST_ENTRY}\nserver: other"),
        "line 5: vcenters[0]: the key `server` occurs twice, first in line 3; remove one",
    ),
    (make_yaml(f"{WEST_ENTRY}\n'x` - at `$': x"), "line 5: vcenters[0]: a key must not contain `"),
    (
        make_yaml(f"{WEST_ENTRY}\n1: x"),
        "line 5: vcenters[0]: a key must be a string; put it in quotes",
    ),
    (make_yaml(f"{WEST_ENTRY}\n? [a]\n: x"), "line 5: vcenters[0]: a key must be a string"),
    (make_yaml(f"{WEST_ENTRY}\n<<: {{ca: x}}"), "line 5: vcenters[0]: a key must be a string"),
]

VALUE_ERRORS = [
    (
        make_yaml("name: West\nserver: vc\ncredentials: c"),
        'line 2: vcenters[0].name: "West" is not a valid name: use at most 63 lower-case letters',
    ),
    (
        make_yaml('name: ""\nserver: vc\ncredentials: c'),
        'line 2: vcenters[0].name: "" is not a valid name',
    ),
    (make_yaml(f"name: {'x' * 64}\nserver: vc\ncredentials: c"), "is not a valid name"),
    (
        make_yaml("name: a.b\nserver: vc\ncredentials: c"),
        'line 2: vcenters[0].name: "a.b" is not a valid name',
    ),
    (
        make_yaml('name: w\nserver: ""\ncredentials: c'),
        "line 3: vcenters[0].server: must be a host, host:port, an IP address or an https URL",
    ),
    (
        make_yaml("name: w\nserver: http://vc\ncredentials: c"),
        "line 3: vcenters[0].server: must be",
    ),
    (
        make_yaml("name: w\nserver: a host\ncredentials: c"),
        "line 3: vcenters[0].server: must be",
    ),
    (
        make_yaml(f"name: w\nserver: https://root:{CANARY}@vc\ncredentials: c"),
        "line 3: vcenters[0].server: must be",
    ),
    (
        make_yaml(f"name: w\nserver: root:{CANARY}@vc\ncredentials: c"),
        "without a user or password",
    ),
    (
        make_yaml(f"name: w\nserver: root:{CANARY}\ncredentials: c"),
        "line 3: vcenters[0].server: must be",
    ),
    (
        make_yaml('name: w\nserver: vc\ncredentials: ""'),
        "line 4: vcenters[0].credentials: must not be empty; set the directory",
    ),
    (
        make_yaml(f"{WEST_ENTRY}\nnamespaces: {{}}"),
        "line 5: vcenters[0].namespaces: matches no namespace; add `names` or `labels`",
    ),
    (
        make_yaml(f"{WEST_ENTRY}\nnamespaces: {{names: [], labels: {{}}}}"),
        "line 5: vcenters[0].namespaces: matches no namespace",
    ),
    (
        make_yaml(f'{WEST_ENTRY}\nnamespaces:\n  names:\n  - a\n  - ""'),
        "line 8: vcenters[0].namespaces.names[1]: must not be empty: use lower-case letters",
    ),
    (
        make_yaml(f"{WEST_ENTRY}\nnamespaces: {{names: [Team_A]}}"),
        'line 5: vcenters[0].namespaces.names[0]: "Team_A" matches no namespace',
    ),
    (
        make_yaml(f"{WEST_ENTRY}\nnamespaces:\n  labels: {{site: west-*}}"),
        "line 6: vcenters[0].namespaces.labels.site: is not a valid label",
    ),
    (
        make_yaml(f'{WEST_ENTRY}\nnamespaces: {{labels: {{"": x}}}}'),
        "line 5: vcenters[0].namespaces.labels.: is not a valid label",
    ),
    (
        make_yaml(f"{WEST_ENTRY}\nnamespaces: {{names: [a]}}", WEST_ENTRY),
        'vcenters.yaml line 6: vcenters[1].name: "west" is already the name of another vCenter; '
        "names must be unique",
    ),
    (
        make_yaml(WEST_ENTRY, "name: east\nserver: vc\ncredentials: c"),
        "vcenters.yaml line 5: vcenters[1]: has no `namespaces` and so serves all other "
        "namespaces, "
        'as "west" does; set `namespaces` of one of them',
    ),
    (
        make_yaml(
            f"{WEST_ENTRY}\nnamespaces: {{names: [a, b-*]}}",
            "name: east\nserver: vc\ncredentials: c\nnamespaces:\n  names:\n  - x\n  - b-*",
        ),
        'vcenters.yaml line 12: vcenters[1].namespaces.names[1]: "b-*" is already in "west"; '
        "remove one of them",
    ),
    (
        make_yaml(
            f"{WEST_ENTRY}\nnamespaces: {{labels: {{a: b}}}}",
            "name: east\nserver: vc\ncredentials: c\nnamespaces: {labels: {a: b}}",
        ),
        'vcenters.yaml line 9: vcenters[1].namespaces.labels: "west" has the same labels; change '
        "one of them",
    ),
]

SYNTAX_ERRORS = [
    (
        f"vcenters:\n  - name: {CANARY}: x\n",
        "vcenters.yaml line 2: is not valid YAML; check the indentation",
    ),
    (
        f"vcenters:\n\t- name: {CANARY}\n",
        "vcenters.yaml line 2: is not valid YAML: indent with spaces, not with tabs",
    ),
    (f"vcenters:\n  - name: '{CANARY}\n", "is not valid YAML"),
    (f"vcenters: [{CANARY}\n", "is not valid YAML"),
    (
        "vcenters: []\n---\nvcenters: []\n",
        "vcenters.yaml line 2: a second document begins here; put everything into one list, "
        "without ---",
    ),
    (
        "vcenters:\n  - &w {name: w}\n  - *w\n",
        "vcenters.yaml line 3: aliases (*name) are not allowed; write the value out",
    ),
    ("&a [*a]\n", "line 1: aliases"),
    ("vcenters:\n  - *missing\n", "line 2: aliases"),
    (
        "vcenters: " + "[" * 20_000,
        "vcenters.yaml: is not YAML: it may be binary, not UTF-8, or nested too deeply",
    ),
    ("vcenters: \x00", "is not YAML"),
]


@pytest.mark.parametrize(
    ("text", "message"), TYPE_ERRORS + KEY_ERRORS + VALUE_ERRORS + SYNTAX_ERRORS
)
def test_invalid_file_is_reported_with_its_line(text: str, message: str) -> None:
    assert message in find_config_error(text)


def test_alias_bomb_is_rejected() -> None:
    levels = "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert "aliases" in find_config_error(f"a: &a [x]\n{levels}")


def test_binary_file_is_rejected() -> None:
    with pytest.raises(ConfigError, match="is not YAML"):
        VCENTERS_FORMAT.decode("f", b"vcenters: \xff\xfa")


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "vcenters.yaml"
    file.write_text(FULL_YAML)
    assert [entry.name for entry in VCENTERS_FORMAT.read(str(file)).vcenters] == ["west", "rest"]


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"nowhere\.yaml: cannot be read: No such file or directory\. Check the path "
        r"after -vcenters",
    ):
        VCENTERS_FORMAT.read(str(tmp_path / "nowhere.yaml"))
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        VCENTERS_FORMAT.read(str(tmp_path))
    with pytest.raises(ConfigError, match="this is not a file name"):
        VCENTERS_FORMAT.read("a\0b")


def test_large_file_is_not_parsed(tmp_path: Path) -> None:
    file = tmp_path / "vcenters.yaml"
    file.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than 256 KiB"):
        VCENTERS_FORMAT.read(str(file))


@pytest.mark.parametrize(
    ("server", "host", "port", "path"),
    [
        ("vc.example.com", "vc.example.com", 443, "/sdk"),
        ("vc", "vc", 443, "/sdk"),
        (" vc.example.com:8443 ", "vc.example.com", 8443, "/sdk"),
        ("https://vc.example.com", "vc.example.com", 443, "/sdk"),
        ("https://vc.example.com:8989/other/", "vc.example.com", 8989, "/other"),
        ("192.0.2.7", "192.0.2.7", 443, "/sdk"),
        ("2001:db8::7", "2001:db8::7", 443, "/sdk"),
        ("https://[2001:db8::7]:444/sdk", "2001:db8::7", 444, "/sdk"),
    ],
)
def test_accepted_server_addresses(server: str, host: str, port: int, path: str) -> None:
    address = parse_server_address(server, insecure=False, ca_file="ca.crt")
    assert (address.host, address.port, address.path, address.ca_file, address.insecure) == (
        host,
        port,
        path,
        "ca.crt",
        False,
    )


def test_insecure_address_has_no_ca_bundle() -> None:
    assert parse_server_address("vc", insecure=True, ca_file="ca.crt").ca_file == ""


@pytest.mark.parametrize(
    "server",
    [
        "",
        "-",
        "a..b",
        "vc:port",
        "vc:99999",
        "ftp://vc",
        "https://",
        "https://[::1",
        "a b",
        "u@vc",
        "v\u2100c",
        "v\u00e9",
    ],
)
def test_invalid_server_address(server: str) -> None:
    with pytest.raises(ValueError, match="must be a host"):
        parse_server_address(server, insecure=False, ca_file="")


@given(st.text(alphabet=string.ascii_letters + string.punctuation + " \n\t0", max_size=60))
def test_any_text_is_read_or_rejected_with_a_message(text: str) -> None:
    try:
        parse_entries("vcenters:\n  - " + text)
    except ConfigError as error:
        assert str(error).startswith("vcenters.yaml")  # noqa: PT017
