"""Credentials from a mounted Secret, and secrets that are never shown."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import threading
from pathlib import Path

import pytest

from kubewright.testing import eventually
from vsphere_operators.vsphere.credentials import (
    Credentials,
    DirectoryCredentials,
    FixedCredentials,
)
from vsphere_operators.vsphere.faults import Denied

from .canned_server import render_error

CANARY = "canary-5d41402a"


def write_files(path: Path, **files: str) -> Path:
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        (path / name).write_text(text)
    return path


def swap_secret(mount: Path, generation: str, **files: str) -> None:
    """Update the files as the kubelet does: a new directory, and one rename of the link to it."""
    write_files(mount / f"..{generation}", **files)
    (mount / "..data_tmp").symlink_to(f"..{generation}")
    os.replace(mount / "..data_tmp", mount / "..data")
    for name in files:
        if not (mount / name).is_symlink():
            (mount / name).symlink_to(f"..data/{name}")


@pytest.mark.parametrize(
    ("user", "password"),
    [("GOVMOMI_USERNAME", "GOVMOMI_PASSWORD"), ("VC_USER", "VC_PASS"), ("username", "password")],
)
def test_every_pair_of_keys_is_accepted(tmp_path: Path, user: str, password: str) -> None:
    write_files(tmp_path, **{user: "me\n", password: " p w \r\n", "GOVMOMI_URL": "https://vc"})
    assert DirectoryCredentials(tmp_path).read() == Credentials(username="me", password=" p w ")


def test_first_complete_pair_is_used(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        GOVMOMI_USERNAME="half",
        GOVMOMI_PASSWORD="\n",
        VC_USER="me",
        VC_PASS="mine",
        username="other",
        password="other",
    )
    assert DirectoryCredentials(tmp_path).read() == Credentials(username="me", password="mine")


def test_token_precedes_certificate_precedes_password(tmp_path: Path) -> None:
    write_files(tmp_path, username="me", password="mine")
    write_files(tmp_path, **{"tls.crt": "C", "tls.key": "K", "extension-key": "com.example"})
    by_certificate = DirectoryCredentials(tmp_path).read()
    assert (by_certificate.extension_key, by_certificate.pem) == ("com.example", b"CK")
    assert by_certificate.certificate_file == str(tmp_path / "tls.crt")
    write_files(
        tmp_path, **{"saml-token": '<?xml version="1.0" encoding="UTF-8"?>\n<Assertion/>\n'}
    )
    assert DirectoryCredentials(tmp_path).read() == Credentials(saml_token="<Assertion/>")


def test_certificate_without_extension_key_is_ignored(tmp_path: Path) -> None:
    write_files(tmp_path, **{"tls.crt": "C", "tls.key": "K", "username": "me", "password": "mine"})
    assert DirectoryCredentials(tmp_path).read().username == "me"


ALL_KEYS_PATTERN = (
    r"GOVMOMI_USERNAME and GOVMOMI_PASSWORD, or VC_USER and VC_PASS, or username and password; or "
    r"saml-token; or tls\.crt"
)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "none of the expected keys exists"),
        ({"username": "", "password": "\n"}, "or all are empty"),
        ({"VC_USER": "me"}, "VC_USER is set, but VC_PASS is missing or empty"),
        (
            {"GOVMOMI_PASSWORD": CANARY},
            "GOVMOMI_PASSWORD is set, but GOVMOMI_USERNAME is missing or empty",
        ),
    ],
)
def test_missing_keys_are_reported(tmp_path: Path, files: dict[str, str], message: str) -> None:
    write_files(tmp_path, **files)
    with pytest.raises(Denied, match=ALL_KEYS_PATTERN) as caught:
        DirectoryCredentials(tmp_path).read()
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert CANARY not in str(caught.value)


def test_missing_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Denied, match="the directory does not exist"):
        DirectoryCredentials(tmp_path / "nowhere").read()
    with pytest.raises(Denied, match="the directory does not exist"):
        DirectoryCredentials(write_files(tmp_path, file="") / "file").read()


def test_unreadable_key_is_reported(tmp_path: Path) -> None:
    (tmp_path / "username").mkdir()
    with pytest.raises(Denied, match="username: Is a directory"):
        DirectoryCredentials(tmp_path).read()


def test_invalid_token_is_reported_and_not_quoted(tmp_path: Path) -> None:
    write_files(tmp_path, **{"saml-token": CANARY})
    with pytest.raises(Denied, match="saml-token is not the XML of a SAML assertion") as caught:
        DirectoryCredentials(tmp_path).read()
    assert CANARY not in render_error(caught.value)


@pytest.mark.parametrize("bad", [b"\xff", b"\x00", b"\x1b", "\uffff".encode()])
def test_password_that_cannot_be_sent_is_reported_and_not_quoted(
    tmp_path: Path, bad: bytes
) -> None:
    write_files(tmp_path, username="me")
    (tmp_path / "password").write_bytes(CANARY.encode() + bad)
    with pytest.raises(Denied, match=f"credentials in {tmp_path} cannot be used") as caught:
        DirectoryCredentials(tmp_path).read()
    assert CANARY not in render_error(caught.value)


@pytest.mark.parametrize(
    "credentials",
    [
        Credentials(),
        Credentials("me"),
        Credentials(password=CANARY),
        Credentials("me", CANARY + "\udcff"),
    ],
)
def test_fixed_credentials_are_checked_too(credentials: Credentials) -> None:
    with pytest.raises(Denied, match="The credentials in the environment cannot be used") as caught:
        FixedCredentials(credentials).read()
    assert CANARY not in render_error(caught.value)


def test_no_repr_shows_a_secret() -> None:
    credentials = Credentials("me", CANARY, saml_token=CANARY, pem=CANARY.encode())
    assert CANARY not in repr(credentials) + str(credentials) + repr(FixedCredentials(credentials))
    assert CANARY in pickle.dumps(credentials).decode("latin-1")  # it is in there


def test_secrets_are_redacted_from_server_messages() -> None:
    credentials = Credentials("me", 'p<&>"w')
    assert (
        credentials.remove_secrets('sent p<&>"w or p&lt;&amp;&gt;"w or p&lt;&amp;&gt;&quot;w')
        == "sent *** or *** or ***"
    )
    assert Credentials(extension_key="x").remove_secrets("as it was") == "as it was"


def test_description_of_credentials() -> None:
    assert Credentials("me", "p").description == 'the user "me"'
    assert Credentials(saml_token="<a/>").description == "the SAML token"
    assert Credentials(extension_key="com.example").description == 'the extension "com.example"'


# Changes


async def test_swapped_secret_is_noticed(tmp_path: Path) -> None:
    assert DirectoryCredentials(tmp_path).poll_seconds == 2.0
    swap_secret(tmp_path, "one", username="me", password="old")
    source = DirectoryCredentials(tmp_path, poll_seconds=0.02)
    waiting = asyncio.create_task(source.wait_for_change(await asyncio.to_thread(source.read)))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    swap_secret(tmp_path, "two", username="me", password="new")
    assert await asyncio.wait_for(waiting, 30) == Credentials("me", "new")


async def test_half_swapped_secret_is_never_read(tmp_path: Path) -> None:
    swap_secret(tmp_path, "0", username="user-0", password="0")
    swapped = threading.Event()
    source = DirectoryCredentials(tmp_path)
    reading = asyncio.ensure_future(asyncio.to_thread(read_pairs, source, swapped))
    for turn in range(1, 31):
        await asyncio.to_thread(
            swap_secret, tmp_path, str(turn), username=f"user-{turn}", password=str(turn)
        )
        await asyncio.to_thread(shutil.rmtree, tmp_path / f"..{turn - 1}")
    swapped.set()
    seen = await reading
    assert len(seen) > 1
    assert {(user, password) for user, password in seen if user != f"user-{password}"} == set()


def read_pairs(source: DirectoryCredentials, swapped: threading.Event) -> set[tuple[str, str]]:
    pairs = set()
    while not swapped.is_set():
        credentials = source.read()
        pairs.add((credentials.username, credentials.password))
    return pairs


async def test_changed_files_are_noticed_when_complete(
    tmp_path: Path,
) -> None:
    source = DirectoryCredentials(
        write_files(tmp_path, username="me", password="old"), poll_seconds=0.02
    )
    waiting = asyncio.create_task(source.wait_for_change(await asyncio.to_thread(source.read)))
    (tmp_path / "password").unlink()
    await asyncio.sleep(0.1)
    assert not waiting.done()
    write_files(tmp_path, password="new")
    assert (await asyncio.wait_for(waiting, 30)).password == "new"


async def test_renewed_certificate_is_a_change(tmp_path: Path) -> None:
    write_files(tmp_path, **{"tls.crt": "C", "tls.key": "K", "extension-key": "com.example"})
    source = DirectoryCredentials(tmp_path, poll_seconds=0.02)
    waiting = asyncio.create_task(source.wait_for_change(await asyncio.to_thread(source.read)))
    write_files(tmp_path, **{"tls.crt": "D"})
    assert (await asyncio.wait_for(waiting, 30)).pem == b"DK"


async def test_fixed_credentials_never_change(tmp_path: Path) -> None:
    good, bad = Credentials("me", "p"), Credentials("me")
    assert await FixedCredentials(good).wait_for_change(Credentials()) == good
    waiting = [
        asyncio.create_task(FixedCredentials(good).wait_for_change(good)),
        asyncio.create_task(FixedCredentials(bad).wait_for_change(Credentials())),
    ]
    done, _ = await asyncio.wait(waiting, timeout=0.2)
    assert done == set()
    for waiter in waiting:
        waiter.cancel()
    await eventually(lambda: all(waiter.cancelled() for waiter in waiting))
