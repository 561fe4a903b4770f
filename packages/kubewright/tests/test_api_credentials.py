"""Live credentials: the header on the wire, when a token is reloaded, and a reload that fails."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kubewright.api_credentials import ApiCredentials
from kubewright.errors import ConfigError, KubeconfigError
from kubewright.kubeconfig import Connection, Identity

from .support.credentials import SECRET, FakeClock, make_credentials, read_token


class TestHeaders:
    """A token, a password, or none."""

    async def test_anonymous_sends_no_header(self) -> None:
        credentials = make_credentials()
        assert await credentials.headers() == {}
        assert not await credentials.refresh()

    async def test_token_is_a_bearer_header(self) -> None:
        credentials = make_credentials(token=SECRET)
        assert await credentials.headers() == {"Authorization": f"Bearer {SECRET}"}
        assert not await credentials.refresh()

    async def test_password_is_a_basic_header(self) -> None:
        credentials = make_credentials(username="jörg", password="a:b")
        expected = base64.b64encode("jörg:a:b".encode()).decode()
        assert await credentials.headers() == {"Authorization": f"Basic {expected}"}

    @pytest.mark.parametrize("token", ["two parts", "two\nlines", "ümlaut", "nul\0", " "])
    async def test_token_that_a_header_cannot_hold_is_an_error(self, token: str) -> None:
        with pytest.raises(KubeconfigError, match="is not a token") as caught:
            await make_credentials(token=token).headers()
        assert caught.value.key == "users[name=me].user.token"
        assert token.strip() not in str(caught.value) or not token.strip()

    async def test_repr_shows_no_secret(self) -> None:
        credentials = make_credentials(token=SECRET)
        await credentials.headers()
        assert SECRET not in repr(credentials.credential)
        assert SECRET not in repr(credentials.connection)

    async def test_caller_may_change_its_headers(self) -> None:
        credentials = make_credentials(token=SECRET)
        (await credentials.headers()).clear()
        assert await credentials.headers()


class TestTokenFile:
    """A token file is read again every minute, and after a 401."""

    async def test_file_is_read_again_after_a_minute(self, tmp_path: Path) -> None:
        clock, file = FakeClock(), tmp_path / "token"
        credentials = make_credentials(clock, token_file=str(file), token="inline")
        file.write_text("one\n")
        assert await read_token(credentials) == "one"
        file.write_text("two\n")
        clock.seconds += 59
        assert await read_token(credentials) == "one"
        clock.seconds += 1
        assert await read_token(credentials) == "two"

    async def test_no_io_while_the_token_is_current(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "token"
        file.write_text("one")
        credentials = make_credentials(token_file=str(file))
        await credentials.headers()

        def fail(*_: object) -> None:
            raise AssertionError("I/O on the hot path")

        monkeypatch.setattr(asyncio, "to_thread", fail)
        monkeypatch.setattr(asyncio, "create_task", fail)
        assert await read_token(credentials) == "one"
        assert credentials.context is not None

    async def test_headers_are_valid_until_the_reload_is_due(self, tmp_path: Path) -> None:
        clock, file = FakeClock(), tmp_path / "token"
        credentials = make_credentials(clock, token_file=str(file))
        assert credentials.valid_until < clock()
        file.write_text("one")
        assert await credentials.headers() == {"Authorization": "Bearer one"}
        assert credentials.valid_until == clock() + 60

    async def test_refresh_reads_the_file_at_once(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("one")
        credentials = make_credentials(token_file=str(file))
        assert await read_token(credentials) == "one"
        assert not await credentials.refresh()
        file.write_text("two")
        assert await credentials.refresh()
        assert await read_token(credentials) == "two"

    async def test_refresh_after_another_refresh_does_not_read_again(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("one")
        credentials = make_credentials(token_file=str(file))
        rejected = await credentials.headers()
        file.write_text("two")
        assert await credentials.refresh(rejected)
        file.unlink()
        assert await credentials.refresh(rejected)
        assert not await credentials.refresh(await credentials.headers())

    @pytest.mark.parametrize(
        "damage",
        [
            Path.unlink,
            lambda file: file.write_text(""),
            lambda file: file.write_text(f"{SECRET} {SECRET}"),
        ],
    )
    async def test_failed_read_keeps_the_old_token(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], object]
    ) -> None:
        clock, file = FakeClock(), tmp_path / "token"
        file.write_text("one")
        credentials = make_credentials(clock, token_file=str(file))
        await credentials.headers()
        damage(file)
        clock.seconds += 60
        with caplog.at_level(logging.DEBUG, "auth"):
            assert await read_token(credentials) == "one"
            assert await read_token(credentials) == "one"
            assert not await credentials.refresh()
        assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
        assert "keeping the old ones" in caplog.text
        assert SECRET not in caplog.text
        file.write_text("two")
        clock.seconds += 60
        assert await read_token(credentials) == "two"

    async def test_first_read_that_fails_is_an_error(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        credentials = make_credentials(token_file=str(file))
        with pytest.raises(
            KubeconfigError, match=re.escape(f"{file} cannot be read: No such file")
        ):
            await credentials.headers()
        file.write_text("one")
        assert await read_token(credentials) == "one"

    async def test_without_a_kubeconfig_the_error_names_the_file(self, tmp_path: Path) -> None:
        credentials = ApiCredentials(
            Connection("https://host", Identity(token_file=str(tmp_path / "token")))
        )
        with pytest.raises(ConfigError, match=r"^\S+token cannot be read"):
            await credentials.headers()
