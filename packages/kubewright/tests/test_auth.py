"""Live credentials: what goes on the wire, when a token is looked at again, and what happens when that fails."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kubewright.auth import Credentials
from kubewright.errors import ConfigError, KubeconfigError
from kubewright.kubeconfig import Connection, Identity

from .support.credentials import SECRET, FakeClock, make_credentials, read_token


class TestHeaders:
    """Token, password, nothing."""

    async def test_anonymous(self) -> None:
        live = make_credentials()
        assert await live.headers() == {}
        assert not await live.refresh()

    async def test_token(self) -> None:
        live = make_credentials(token=SECRET)
        assert await live.headers() == {"Authorization": f"Bearer {SECRET}"}
        assert not await live.refresh()

    async def test_password(self) -> None:
        live = make_credentials(username="jörg", password="a:b")
        expected = base64.b64encode("jörg:a:b".encode()).decode()
        assert await live.headers() == {"Authorization": f"Basic {expected}"}

    @pytest.mark.parametrize("token", ["two words", "two\nlines", "ümlaut", "nul\0", " "])
    async def test_token_that_no_header_can_carry(self, token: str) -> None:
        with pytest.raises(KubeconfigError, match="is no token") as caught:
            await make_credentials(token=token).headers()
        assert caught.value.key == "users[name=me].user.token"
        assert token.strip() not in str(caught.value) or not token.strip()

    async def test_repr_shows_no_secret(self) -> None:
        live = make_credentials(token=SECRET)
        await live.headers()
        assert SECRET not in repr(live.credential)
        assert SECRET not in repr(live.connection)

    async def test_callers_may_change_what_they_get(self) -> None:
        live = make_credentials(token=SECRET)
        (await live.headers()).clear()
        assert await live.headers()


class TestTokenFile:
    """Read again every minute, and after a 401."""

    async def test_read_again_when_due(self, tmp_path: Path) -> None:
        clock, file = FakeClock(), tmp_path / "token"
        live = make_credentials(clock, token_file=str(file), token="inline")
        file.write_text("one\n")
        assert await read_token(live) == "one"
        file.write_text("two\n")
        clock.seconds += 59
        assert await read_token(live) == "one"
        clock.seconds += 1
        assert await read_token(live) == "two"

    async def test_no_thread_between_looks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "token"
        file.write_text("one")
        live = make_credentials(token_file=str(file))
        await live.headers()

        def refused(*_: object) -> None:
            raise AssertionError("I/O on the hot path")

        monkeypatch.setattr(asyncio, "to_thread", refused)
        monkeypatch.setattr(asyncio, "create_task", refused)
        assert await read_token(live) == "one"
        assert await live.ssl_context() is not None

    async def test_refresh_reads_now(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("one")
        live = make_credentials(token_file=str(file))
        assert await read_token(live) == "one"
        assert not await live.refresh()
        file.write_text("two")
        assert await live.refresh()
        assert await read_token(live) == "two"

    async def test_latecomer_retries_without_another_look(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("one")
        live = make_credentials(token_file=str(file))
        refused = await live.headers()
        file.write_text("two")
        assert await live.refresh(refused)
        file.unlink()
        assert await live.refresh(refused)
        assert not await live.refresh(await live.headers())

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
        live = make_credentials(clock, token_file=str(file))
        await live.headers()
        damage(file)
        clock.seconds += 60
        with caplog.at_level(logging.DEBUG, "kubewright.auth"):
            assert await read_token(live) == "one"
            assert await read_token(live) == "one"
            assert not await live.refresh()
        assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
        assert "the old ones stay in use" in caplog.text
        assert SECRET not in caplog.text
        file.write_text("two")
        clock.seconds += 60
        assert await read_token(live) == "two"

    async def test_first_read_must_succeed(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        live = make_credentials(token_file=str(file))
        with pytest.raises(
            KubeconfigError, match=re.escape(f"{file} cannot be read: No such file")
        ):
            await live.headers()
        file.write_text("one")
        assert await read_token(live) == "one"

    async def test_without_a_kubeconfig_the_error_names_the_file(self, tmp_path: Path) -> None:
        live = Credentials(Connection("https://host", Identity(token_file=str(tmp_path / "token"))))
        with pytest.raises(ConfigError, match=r"^\S+token cannot be read"):
            await live.headers()
