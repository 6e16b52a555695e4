"""A tenant who names a server learns nothing of what it answers, and leads no request elsewhere (audit
A10)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.errors import AcmeError
from certwright.acme.protocol.https import HttpTransport
from certwright.acme.protocol.jws import AccountKey
from certwright.acme.protocol.messages import Action, Request, TlsOptions
from certwright.acme.solvers.checks import HttpCheck
from certwright.acme.solvers.contract import NotYet, SolverError, Task
from certwright.acme.solvers.dns01.rfc2136 import Rfc2136
from certwright.acme.solvers.names import NameServers
from certwright.controllers.acme.solver_factory import call_webhook
from certwright.kit.outgoing import ServerRules
from certwright.kube.api.core import SECRETS
from certwright.kube.client.rest import Client
from certwright.pki import keys
from security.conftest import Server, acme, ready, refusal, running_server
from support.world import make_world

SECRET = "TOPSECRET-PAGE"
_TEXT = b"HTTP/1.1 %s\r\nContent-Type: %s\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s"


def answer(status: str, kind: str, body: str, headers: str = "") -> bytes:
    return _TEXT % (status.encode(), kind.encode(), headers.encode(), len(body), body.encode())


# What an internal server may say.
ANSWERS = {
    "a page": answer("200 OK", "text/html", f"<html>{SECRET}</html>"),
    "JSON": answer("200 OK", "application/json", f'{{"password": "{SECRET}"}}'),
    "a JSON error": answer(
        "403 Forbidden", "application/json", f'{{"detail": "{SECRET}", "title": "{SECRET}"}}'
    ),
    "an error page": answer("500 No", "text/html", SECRET),
    "a banner": f"SSH-2.0-{SECRET}\r\n".encode(),
    "a header": f"HTTP/1.1 200 OK\r\n{SECRET}\r\n\r\n".encode(),
    "a type": answer("200 OK", f"text/{SECRET}\u202e".encode().decode("latin-1"), "x"),
    "a redirect": answer(
        "302 Found", "text/html", SECRET, f"Location: http://127.0.0.2:1/login?{SECRET}\r\n"
    ),
    "a redirect to a file": answer("301 Moved", "text/html", SECRET, f"Location: file:///etc/{SECRET}\r\n"),
}


@asynccontextmanager
async def internal_server(said: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """An internal server; its port, and what it was asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(said)
            await writer.drain()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1]), asked
    finally:
        server.close()


async def test_http_servers_and_urls_of_no_server_are_refused_at_admission(server: Server) -> None:
    tenant = server.tenant()
    refusal_text = await refusal(tenant.create("Issuer", "i", spec=acme("http://127.0.0.1:1/page")))
    assert "spec.acme.server" in refusal_text
    assert '"http://127.0.0.1:1/page"' in refusal_text
    assert "--allow-http-servers" in refusal_text
    for url in (
        "file:///etc/passwd",
        "https://a\r\nX: y/",
        "https://u:p@ca.invalid/",
        "https://ca.invalid/#x",
    ):
        assert "spec.acme.server" in await refusal(tenant.create("Issuer", "i", spec=acme(url)))


@pytest.mark.parametrize("said", ANSWERS.values(), ids=ANSWERS)
async def test_no_error_quotes_what_a_server_answers(said: bytes) -> None:
    transport = HttpTransport(
        TlsOptions(), user_agent="t", now=lambda: datetime.now(UTC), rules=ServerRules(allow_http=True)
    )
    key = AccountKey.from_pem(keys.encode_private_key(keys.generate(keys.KeyPlan.of("ECDSA", 256)), "PKCS8"))
    async with internal_server(said) as (port, _):
        client = AcmeClient(f"http://127.0.0.1:{port}/page", key, transport, now=lambda: datetime.now(UTC))
        try:
            with pytest.raises(AcmeError) as caught:
                await client.directory()
        finally:
            await client.close()
    assert SECRET not in str(caught.value)
    assert "\u202e" not in str(caught.value)


async def test_the_condition_of_an_issuer_shows_no_page(tmp_path: Path) -> None:
    async with (
        internal_server(ANSWERS["a page"]) as (port, asked),
        running_server(tmp_path, "--allow-http-servers") as server,
    ):
        tenant = server.tenant()
        await tenant.create("Issuer", "i", spec=acme(f"http://127.0.0.1:{port}/page"))
        issuer = await tenant.until("Issuer", "i", lambda obj: ready(obj).get("status") == "False")
        assert SECRET not in str(issuer)
        assert "answered HTTP status 200 with text/html instead of an ACME directory" in str(issuer)
        assert SECRET not in str(await tenant.list("Event"))
    assert asked


async def test_a_redirect_to_another_host_is_not_followed() -> None:
    transport = HttpTransport(
        TlsOptions(), user_agent="t", now=lambda: datetime.now(UTC), rules=ServerRules(allow_http=True)
    )
    async with internal_server(ANSWERS["a page"]) as (target, asked):
        headers = f"Location: http://localhost:{target}/admin\r\n"
        async with internal_server(answer("307 Temporary", "text/html", "", headers)) as (port, _):
            with pytest.raises(AcmeError, match="redirects to another host, which is not followed"):
                await transport.send(Request(Action.DIRECTORY, "GET", f"http://127.0.0.1:{port}/dir"))
    await transport.close()
    assert asked == []


@pytest.mark.parametrize("said", ANSWERS.values(), ids=ANSWERS)
async def test_the_self_check_quotes_no_page(said: bytes) -> None:
    task = Task(type="http-01", identifier="127.0.0.1", token="t", key="t.k", uid="u")
    async with internal_server(said) as (port, _):
        verdict = await HttpCheck(port=port).check(task)
    assert isinstance(verdict, NotYet)
    assert SECRET not in verdict.reason


@pytest.mark.parametrize(
    ("group", "solver"),
    [
        ("../api/v1/namespaces/kube-system/secrets?x=", "y"),
        ("../api", "v1"),
        ("acme.example.com/v1/../../../api/v1", "secrets"),
        ("acme.example.com", "../../../api/v1/namespaces/default/secrets"),
        ("acme.example.com", "solver?fieldManager=x"),
        ("acme.example.com", ".."),
        ("acme.example.com", ""),
        ("", "solver"),
        ("apps%2fv1", "x"),
    ],
)
async def test_a_webhook_solver_leads_to_no_other_path_of_the_api(group: str, solver: str) -> None:
    """The request has the rights of the controllers, which may write every Secret."""
    async with make_world(controllers=False) as world:
        sent = world.recording.requests
        with pytest.raises(SolverError, match="are not names that an API is served under"):
            await call_webhook(world.client, group, solver, {"request": {}})
        assert world.recording.requests == sent
        assert isinstance(world.client, Client)
        assert (await world.client.list(SECRETS, "default")).items == []


class _Names(NameServers):
    """Knows one zone, and asks nobody."""

    async def zone_of(self, name: str) -> str:
        return "example.org"


@pytest.mark.parametrize("said", [ANSWERS["a banner"], ANSWERS["a page"], b"\0\x40" + SECRET.encode() * 10])
async def test_a_name_server_that_speaks_something_else_is_not_quoted(said: bytes) -> None:
    task = Task(type="dns-01", identifier="a.example.org", token="t", key="k", uid="u")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(1)
            writer.write(said)
            await writer.drain()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = int(server.sockets[0].getsockname()[1])
    try:
        solver = Rfc2136(("127.0.0.1", port), _Names(), tcp=True, timeout_s=20)
        with pytest.raises(SolverError) as caught:
            await solver.present(task)
    finally:
        server.close()
    assert SECRET not in str(caught.value)
