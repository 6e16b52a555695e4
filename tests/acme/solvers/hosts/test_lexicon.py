"""Providers of dns-lexicon: the real library, its PowerDNS provider against a real PowerDNS."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.child import plugin
from certwright.acme.solvers.dns01.child.messages import Provider
from certwright.acme.solvers.dns01.hosts.contract import (
    CredentialsRejected,
    Edit,
    HostedZone,
    Outside,
    Throttled,
)
from certwright.acme.solvers.dns01.hosts.in_child import ChildHost, settings_of
from certwright.acme.solvers.dns01.hosts.session import HostSession
from certwright.app.options import lexicon_problem
from conformance.check_dns_host import OF_OTHERS, SHARED, ZONE, check_dns_host
from support.dns.powerdns import KEY, TSIG_SECRET, PowerDnsServer, running_powerdns, served, set_records
from support.programs import free_port
from support.real import missing, require_package

WRONG_KEY = "a-wrong-key"
EDIT = Edit(f"_acme-challenge.a.{ZONE}", "v", True)
_TRIES = """
import json, os, socket, ssl, subprocess, sys
from certwright.acme.solvers.dns01.child.confine import Denied, confine, denial

def connect(host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(0.01)
        one.connect((host, port))

def chained():
    try:
        connect("127.0.0.1", 80)
    except OSError as error:
        raise RuntimeError("request failed") from error

tries = {
    "read a secret": lambda: open("/etc/passwd").read(),
    "read by a link": lambda: open(sys.argv[1] + "/link").read(),
    "read by a descriptor": lambda: os.open("/etc/passwd", os.O_RDONLY),
    "write": lambda: open(sys.argv[1] + "/file", "w"),
    "append beside Python": lambda: open(os.__file__, "a"),
    "remove": lambda: os.remove(sys.argv[1] + "/link"),
    "make a directory": lambda: os.mkdir(sys.argv[1] + "/directory"),
    "run": lambda: subprocess.run(["true"]),
    "shell": lambda: os.system("true"),
    "fork": lambda: os.fork(),
    "loopback": lambda: connect("127.0.0.1", 443),
    "loopback of IPv6": lambda: connect("::1", 443),
    "loopback, mapped": lambda: connect("::ffff:127.0.0.1", 443),
    "private": lambda: connect("10.0.0.1", 443),
    "metadata": lambda: connect("169.254.169.254", 80),
    "http": lambda: connect("192.0.43.8", 80),
    "local socket": lambda: socket.socket(socket.AF_UNIX).connect("/run/docker.sock"),
    "datagram": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("10.0.0.1", 123)),
    "a denial below another error": chained,
    "https": lambda: connect("8.8.8.8", 443),
    "a name server": lambda: connect("127.0.0.53", 53),
    "the operator's server": lambda: connect("127.0.0.9", 8081),
    "a module": lambda: __import__("wave"),
    "time zones": lambda: open("/usr/share/zoneinfo/UTC"),
    "TLS": lambda: ssl.create_default_context(),
}
confine(["http://127.0.0.9:8081/api", "main", "true", "::::"])
found = {}
for name, attempt in tries.items():
    try:
        attempt()
        found[name] = "done"
    except Exception as error:
        found[name] = "denied" if denial(error) else "tried"
print(json.dumps(found))
"""
_ALLOWED = ("https", "a name server", "the operator's server", "a module", "time zones", "TLS")


@pytest.fixture(scope="module", autouse=True)
def _library() -> None:
    require_package("lexicon")


@pytest.fixture(scope="module")
def server() -> Iterator[PowerDnsServer]:
    with running_powerdns([ZONE]) as running:
        yield running


def host_of(
    outside: Outside, server: str = "", *, provider: str = "powerdns", key: str = KEY, **options: str
) -> ChildHost:
    """`server` is the one that the operator names."""
    named = {"pdns_server": server} if server else {}
    made = Provider(
        kind="lexicon",
        name=provider,
        options={"auth_token": key, **options, **named},
        servers=tuple(named.values()),
    )
    return settings_of(made, [key]).connect(outside)


async def reason_of(host: ChildHost) -> str:
    """The error of finding the zone."""
    with pytest.raises(SolverError) as caught:
        await host.find_zone(ZONE)
    return str(caught.value)


async def test_it_behaves_as_a_dns_host(server: PowerDnsServer, outside: Outside) -> None:
    await set_records(server, f"_acme-challenge.{SHARED}", [OF_OTHERS])

    async def see(name: str) -> set[str]:
        return served(server, name)

    # This provider replaces all values of a name: only one process may edit a name at a time.
    session = HostSession(host_of(outside, server.url), outside.now)
    await check_dns_host(lambda: session, see)


async def test_another_provider_by_dynamic_updates(server: PowerDnsServer, outside: Outside) -> None:
    # It sends to port 53 only.
    try:
        forwarder = await asyncio.start_server(partial(forward, server.port), "127.0.0.9", 53)
    except OSError as error:
        missing(f"port 53 cannot be used: {error.strerror}")
    key = f"hmac-sha256:certwright:{TSIG_SECRET}"
    host = host_of(outside, provider="ddns", key=key, ddns_server="127.0.0.9")
    async with forwarder:
        other = Edit(EDIT.name, "other", True)
        await host.apply(HostedZone(ZONE, ZONE), [EDIT, other])
        assert served(server, EDIT.name) == {"v", "other"}
        await host.apply(HostedZone(ZONE, ZONE), [replace(EDIT, adds=False), replace(other, adds=False)])
    assert served(server, EDIT.name) == set()


async def forward(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass a connection on to that port."""

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while piece := await source.read(65_536):
            target.write(piece)
        target.close()

    back, forth = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(copy(reader, forth), copy(back, writer))


async def test_wrong_credentials_are_named_and_not_shown(server: PowerDnsServer, outside: Outside) -> None:
    with pytest.raises(
        CredentialsRejected, match=r"find the zone example\.org: its API answered with status 401"
    ) as e:
        await host_of(outside, server.url, key=WRONG_KEY).find_zone(ZONE)
    assert WRONG_KEY not in str(e.value)


async def test_missing_options_are_named_without_a_request(outside: Outside) -> None:
    with pytest.raises(SolverError, match=r"cannot be loaded: .*not defined \(pdns_server\)"):
        await host_of(outside).verify()


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [
        (429, Throttled, "status 429"),
        (503, Throttled, "status 503"),
        (403, CredentialsRejected, "status 403"),
        (500, SolverError, "status 500"),
        (200, SolverError, "JSONDecodeError"),
    ],
)
async def test_what_the_api_answers_is_one_sentence(
    outside: Outside, status: int, error: type[SolverError], reason: str
) -> None:
    async def answer(_request: web.Request) -> web.Response:
        text = f"<html>\n{KEY}</html>"
        return web.Response(status=status, text=text, content_type="text/html", headers={"Retry-After": "60"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        with pytest.raises(error, match=reason) as caught:
            await host_of(outside, f"http://127.0.0.1:{port}").apply(HostedZone(ZONE, ZONE), [EDIT])
    finally:
        await runner.cleanup()
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)
    assert KEY not in str(caught.value)
    if isinstance(caught.value, Throttled):
        assert (caught.value.until - outside.now()).total_seconds() == 60


async def test_nothing_listens(outside: Outside) -> None:
    assert "its API cannot be reached (ConnectionError)" in await reason_of(
        host_of(outside, f"http://127.0.0.1:{free_port()}")
    )


async def test_a_server_that_the_operator_has_not_named_is_not_reached(
    server: PowerDnsServer, outside: Outside, tmp_path: Path
) -> None:
    # As if `resources/lexicon.py` had let the option through.
    reason = await reason_of(host_of(outside, pdns_server=server.url))
    assert "neither at a public address, port 443, nor named by the operator" in reason
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        reason = await reason_of(host_of(outside, pdns_server=str(path)))
    assert "local socket, which is not allowed" in reason


async def test_exceptions_from_a_proxy_are_no_servers(
    server: PowerDnsServer, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    reason = await reason_of(host_of(outside, pdns_server=server.url))
    assert "nor named by the operator" in reason


async def test_a_file_that_an_option_names_is_not_read(outside: Outside, tmp_path: Path) -> None:
    secret = tmp_path / "key.json"
    secret.write_text('{"type": "secret-content"}')
    host = host_of(outside, provider="googleclouddns", auth_service_account_info=f"file::{secret}")
    reason = await reason_of(host)
    assert reason.endswith("it tried to read a file of this machine, which is not allowed")


async def test_options_come_from_the_manifest_only(
    server: PowerDnsServer, outside: Outside, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LEXICON_POWERDNS_AUTH_TOKEN", KEY)
    monkeypatch.setenv("LEXICON_POWERDNS_PDNS_SERVER", server.url)
    (tmp_path / "lexicon_powerdns.yml").write_text(f"auth_token: {KEY}\npdns_server: {server.url}\n")
    monkeypatch.chdir(tmp_path)
    assert "pdns_server" in await reason_of(host_of(outside))


async def test_a_package_that_a_provider_lacks_is_named(outside: Outside) -> None:
    reason = await reason_of(host_of(outside, provider="route53"))
    assert reason.endswith("pip install 'dns-lexicon[route53]'")


async def test_unknown_and_forbidden_providers_are_refused_at_start() -> None:
    assert lexicon_problem(("hetzner", "powerdns")) == ""
    assert lexicon_problem(("nope",)) == "dns-lexicon has no provider `nope`; `lexicon --help` lists them"
    assert "it edits files" in lexicon_problem(("powerdns", "localzone"))
    assert "it chooses a provider" in lexicon_problem(("auto",))
    assert len(plugin.lexicon_providers()) > 80


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("files")
    (folder / "link").symlink_to("/etc/passwd")
    ended = subprocess.run(
        [sys.executable, "-P", "-c", _TRIES, str(folder)], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def test_all_else_is_denied(outcomes: dict[str, str]) -> None:
    denied = {name for name, outcome in outcomes.items() if outcome == "denied"}
    assert set(outcomes) - denied == set(_ALLOWED)


def test_what_a_provider_needs_is_allowed(outcomes: dict[str, str]) -> None:
    assert {name: outcomes[name] for name in ("a module", "TLS")} == {"a module": "done", "TLS": "done"}
    if Path("/usr/share/zoneinfo/UTC").exists():
        assert outcomes["time zones"] == "done"
