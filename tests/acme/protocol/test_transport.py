"""What goes over the wire to an ACME server, and by which way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from certwright.acme.protocol.errors import AcmeError
from certwright.acme.protocol.https import HttpTransport
from certwright.acme.protocol.messages import Action, Request, TlsOptions, Transport
from certwright.kit.outgoing import ServerRules


@asynccontextmanager
async def listening(seen: list[web.BaseRequest]) -> AsyncIterator[int]:
    """A server that answers everything; what it was asked is in `seen`."""

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(request)
        return web.Response(text="{}", content_type="application/json")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@pytest.fixture
async def sender() -> AsyncIterator[Transport]:
    transport = HttpTransport(
        TlsOptions(),
        user_agent="certwright/test",
        now=lambda: datetime.now(UTC),
        timeout_s=200.0,
        rules=ServerRules(allow_http=True),
    )
    yield transport
    await transport.close()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def test_a_server_elsewhere_is_asked_by_way_of_the_proxy(
    monkeypatch: pytest.MonkeyPatch, sender: Transport
) -> None:
    seen: list[web.BaseRequest] = []
    async with listening(seen) as port:
        monkeypatch.setenv("HTTP_PROXY", f"http://user:word@127.0.0.1:{port}")
        answer = await sender.send(Request(Action.DIRECTORY, "GET", "http://acme.invalid/directory"))
    assert answer.status == 200
    assert str(seen[0].url) == "http://acme.invalid/directory"
    assert seen[0].headers["Proxy-Authorization"] == "Basic dXNlcjp3b3Jk"


async def test_passwords_of_the_users_other_programs_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sender: Transport
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password word\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    seen: list[web.BaseRequest] = []
    async with listening(seen) as port:
        await sender.send(Request(Action.DIRECTORY, "GET", f"http://127.0.0.1:{port}/directory"))
    assert "Authorization" not in seen[0].headers


@pytest.mark.parametrize("url", ["acme.example/dir", "http://[::1/dir", "https://", "ftp://acme.example/dir"])
async def test_what_is_no_url_is_an_error_with_a_sentence(url: str, sender: Transport) -> None:
    with pytest.raises(AcmeError, match=r"write https:|cannot be reached"):
        await sender.send(Request(Action.DIRECTORY, "GET", url))
