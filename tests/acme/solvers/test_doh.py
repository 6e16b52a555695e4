"""DNS over HTTPS: against a real BIND, which speaks HTTP/2 only, and against servers that misbehave."""

from __future__ import annotations

import asyncio
import importlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import dns.message
import dns.rcode
import dns.rrset
import pytest
import trustme

from certwright.acme.solvers import addresses, doh, names
from certwright.acme.solvers.addresses import check_recursive_server
from certwright.acme.solvers.checks import DnsCheck
from certwright.acme.solvers.contract import NotYet, Ready, Task
from certwright.acme.solvers.names import Answer, LookupFailed, NameServers
from certwright.kube.util.clock import SystemClock
from kube.client.test_http1 import Proxy, serving
from support.bind import Bind, running_bind
from support.programs import free_port

# Loaded by the first query otherwise: pytest rewrites it, which Python 3.11 does badly beside threads.
importlib.import_module("anyio._backends._asyncio")

NAME = "_acme-challenge.a.example.org"
TASK = Task(type="dns-01", identifier="a.example.org", token="t", key="value", uid="u")
RECORDS = """\
_acme-challenge.a TXT "value"
many TXT "x"
""" + "".join(f'long TXT "{number:03}{"y" * 250}"\n' for number in range(40))
BAD_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(autouse=True)
def _trusted(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CA is one of the system's."""
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))


@pytest.fixture(scope="module")
def bind(authority: trustme.CA) -> Iterator[Bind]:
    with running_bind(records={"example.org": RECORDS}, pair=authority.issue_cert("127.0.0.1")) as running:
        yield running


def names_of(*servers: str, authority_port: int = 53) -> NameServers:
    return NameServers(servers, authority_port=authority_port, over_https=True)


def context(authority: trustme.CA, host: str = "127.0.0.1", *, alpn: str = "http/1.1") -> ssl.SSLContext:
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(host).configure_cert(made)
    made.set_alpn_protocols([alpn])
    return made


@asynccontextmanager
async def server(serve: Serve, tls: ssl.SSLContext) -> AsyncIterator[str]:
    """The URL of a server."""

    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.transport.abort()

    listening = await asyncio.start_server(quietly, "127.0.0.1", 0, ssl=tls)
    async with listening:
        yield f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}/dns-query?a=b"


def saying(response: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(response)
        await writer.drain()

    return serve


def response(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


async def failure(url: str) -> str:
    with pytest.raises(LookupFailed) as caught:
        await names_of(url).txt(NAME)
    return str(caught.value)


async def test_records_zones_and_addresses_come_from_a_real_server(bind: Bind) -> None:
    asking = names_of(bind.url, authority_port=bind.port)
    assert (await asking.txt(NAME)).values == ("value",)
    assert await asking.zone_of(NAME) == "example.org"
    assert (await asking.authorities(NAME)).servers == (("ns1.example.org", ("127.0.0.1",)),)
    missing = await asking.txt("nothing.ns1.example.org")
    assert (missing.exists, missing.values) == (False, ())
    assert await asking.caa("example.org") == ()


async def test_an_answer_longer_than_a_frame_is_read_whole(bind: Bind) -> None:
    assert len((await names_of(bind.url).txt("long.example.org")).values) == 40


@pytest.mark.parametrize("recursive_only", [False, True])
async def test_the_self_check_works_with_it(bind: Bind, recursive_only: bool) -> None:
    asking = names_of(bind.url, authority_port=bind.port)
    check = DnsCheck(asking, SystemClock().now, recursive_only=recursive_only)
    assert await check.check(TASK) == Ready()
    missing = await check.check(Task(type="dns-01", identifier="b.example.org", token="", key="", uid=""))
    assert isinstance(missing, NotYet)
    assert "_acme-challenge.b.example.org" in missing.reason


async def test_many_queries_at_a_time_are_all_answered(bind: Bind) -> None:
    asking = names_of(bind.url)
    results = await asyncio.gather(*(asking.txt("many.example.org") for _ in range(100)))
    assert results == [Answer(("x",))] * 100


async def test_plain_servers_and_https_ones_replace_each_other(bind: Bind) -> None:
    dead = free_port()
    for servers in ((f"https://127.0.0.1:{dead}/", bind.address), (bind.url, "127.0.0.1:1")):
        assert (await names_of(*servers).txt(NAME)).values == ("value",)
    with pytest.raises(LookupFailed, match=rf"https://127\.0\.0\.1:{dead}/ cannot be queried: .*refused.*; "):
        await names_of(f"https://127.0.0.1:{dead}/", f"https://127.0.0.1:{dead}/").txt(NAME)


async def test_a_server_of_http_1_is_asked_as_rfc_8484_says(authority: trustme.CA) -> None:
    seen = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        query = await reader.readexactly(length)
        seen.append((head, query))
        answer = dns.message.make_response(dns.message.from_wire(query))
        answer.answer.append(dns.rrset.from_text(f"{NAME}.", 60, "IN", "TXT", "value"))
        writer.write(response(answer.to_wire()))
        await writer.drain()

    async with server(serve, context(authority)) as url:
        assert (await names_of(url).txt(NAME)).values == ("value",)
    head, query = seen[0]
    assert head.startswith("post /dns-query?a=b http/1.1\r\n")
    assert "content-type: application/dns-message\r\naccept: application/dns-message" in head
    assert query[:2] == b"\0\0"


async def test_a_proxy_of_the_environment_leads_to_it(bind: Bind, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy()
    async with serving(proxy) as port:
        monkeypatch.setattr(doh, "proxy_for", lambda _: f"http://127.0.0.1:{port}")
        assert (await names_of(bind.url).txt(NAME)).values == ("value",)
    assert proxy.lines[0] == f"CONNECT 127.0.0.1:{bind.https_port} HTTP/1.1"


async def test_a_server_that_is_not_trusted_gets_no_query(
    authority: trustme.CA, bind: Bind, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(100))

    for tls in (context(trustme.CA()), context(authority, "other.example.org")):
        async with server(serve, tls) as url:
            assert "its certificate is not trusted: " in await failure(url)
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.crt")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "other.crt"))
    assert "unable to get local issuer certificate; add its CA" in await failure(bind.url)
    assert not any(seen)


SECRET = "TOPSECRET"
REDIRECT = response(b"", "302 Found", f"Location: https://127.0.0.2/{SECRET}\r\n")
REFUSED = dns.message.make_response(dns.message.make_query(NAME, "TXT", id=0))
REFUSED.set_rcode(dns.rcode.REFUSED)
OTHER = dns.message.make_response(dns.message.make_query("other.example.org", "TXT", id=0))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (response(SECRET.encode(), "403 Forbidden"), "it answered with HTTP status 403"),
        (REDIRECT, "it answered with HTTP status 302"),
        (BAD_GATEWAY, "it answered with HTTP status 502"),
        (response(f"<html>{SECRET}".encode()), "something that is not a complete DNS message"),
        (response(b""), "something that is not a complete DNS message"),
        (response(OTHER.to_wire()), "it answered another query"),
        (response(REFUSED.to_wire()), f"answered REFUSED for {NAME}"),
        (response(b"x" * 70_000), "it answered with more than 16384 bytes"),
        (response(b"x", headers="Content-Encoding: gzip\r\n"), "it compresses its answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx", "its answer ended before it was complete"),
        (b"", "it closed the connection without an answer"),
        (f"SSH-2.0-{SECRET}\r\n".encode(), "or does not speak HTTP"),
    ],
)
async def test_a_useless_answer_is_described_and_never_quoted(
    authority: trustme.CA, said: bytes, words: str
) -> None:
    async with server(saying(said), context(authority)) as url:
        message = await failure(url)
    assert message.startswith(f"the name server {url} ")
    assert words in message
    assert SECRET not in message


async def test_a_silent_server_and_one_that_never_ends_meet_the_time_limit(
    authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "_TIMEOUT_S", 0.3)

    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def endless(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.transport.is_closing():
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await asyncio.sleep(0.01)

    for serve, alpn in ((silent, "http/1.1"), (silent, "h2"), (endless, "http/1.1")):
        async with server(serve, context(authority, alpn=alpn)) as url:
            assert "did not answer within 0.3 s" in await failure(url)
    async with serving(silent) as port:  # not even a TLS handshake
        assert "did not answer within 0.3 s" in await failure(f"https://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("https://", "is not a URL of a server"),
        ("https://user:pass@1.1.1.1/dns-query", "contains a user name or a password"),
        ("https://1.1.1.1/dns-query#x", "contains a fragment"),
        ("https://1.1.1.1/dns query", "contains a control character or a space"),
        ("https://1.1.1.1:x/", "is not a URL"),
        ("https://ü.example/", "write its host and path in ASCII"),
        ("http://1.1.1.1/dns-query", "is not a name server"),
        ("tls://1.1.1.1", "is not a name server"),
    ],
)
def test_a_url_without_sense_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_recursive_server(text)
    with pytest.raises(ValueError, match=words):
        NameServers([text], over_https=True)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"run `pip install 'certwright\[doh\]'`"):
        NameServers(["https://1.1.1.1/dns-query"], over_https=True)


def test_only_the_operator_names_such_a_server() -> None:
    with pytest.raises(ValueError, match="only --dns01-recursive-nameservers may name"):
        NameServers(["https://1.1.1.1/dns-query"])
