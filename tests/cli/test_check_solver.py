"""`certwright check solver`: with a real PowerDNS, a fake Cloudflare, and a page of the command itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from cli.calls import Cli
from support.dns.cloudflare import TOKEN, FakeCloudflare
from support.dns.powerdns import TSIG_SECRET, PowerDnsServer, running_powerdns
from support.programs import free_port

NAME = "www.example.org"
ISSUER = """
apiVersion: v1
kind: Secret
metadata: {{name: credentials}}
stringData: {{key: "{secret}"}}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {{name: acme}}
spec:
  acme:
    server: https://127.0.0.1:1/directory
    privateKeySecretRef: {{name: account}}
    solvers:
      - {solver}
"""
CLOUDFLARE = "{dns01: {cloudflare: {apiTokenSecretRef: {name: credentials, key: key}}}}"


@pytest.fixture(scope="module")
def server() -> Iterator[PowerDnsServer]:
    with running_powerdns() as running:
        yield running


@pytest.fixture
def fake() -> Iterator[FakeCloudflare]:
    """An account with the zone example.org, served by another thread."""
    made, loop, ends = FakeCloudflare("example.org"), asyncio.new_event_loop(), threading.Event()
    serves = threading.Event()

    async def serve() -> None:
        async with made.running():
            serves.set()
            await asyncio.to_thread(ends.wait)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    serves.wait()
    yield made
    ends.set()
    thread.join()
    loop.close()


def apply(cli: Cli, namespace: str, solver: str, secret: str) -> None:
    manifests = ISSUER.format(solver=solver, secret=secret)
    applied = cli("apply", "-n", namespace, "-f", "-", stdin=manifests)
    assert applied.status == 0, applied.err


def by_update(server: PowerDnsServer) -> str:
    return (
        f'{{dns01: {{rfc2136: {{nameserver: "{server.address}", tsigKeyName: certwright, '
        "tsigAlgorithm: HMACSHA256, tsigSecretSecretRef: {name: credentials, key: key}}}}"
    )


def asks(server: PowerDnsServer) -> tuple[str, ...]:
    return ("--dns01-recursive-nameservers", server.address, "--dns01-recursive-nameservers-only")


def test_a_solver_that_works_ends_with_0_and_leaves_nothing(
    cli: Cli, namespace: str, server: PowerDnsServer
) -> None:
    apply(cli, namespace, by_update(server), TSIG_SECRET)
    result = cli("check", "solver", "acme", f"*.{NAME}", "-n", namespace, *asks(server))
    assert (result.status, result.err) == (0, "")
    steps = [line.split()[0] for line in result.out.splitlines()]
    assert steps == ["solver", "zone", "added", "seen", "removed"]
    lines = result.out.splitlines()
    assert lines[0] == 'solver   spec.acme.solvers[0] of Issuer "acme": DNS-01 by rfc2136'
    assert lines[1] == "zone     example.org"
    assert lines[2].startswith(f'added    _acme-challenge.{NAME} TXT "')
    assert asyncio.run(server.names("example.org")) == set()


def test_a_wrong_key_ends_with_1_and_the_servers_own_reason(
    cli: Cli, namespace: str, server: PowerDnsServer
) -> None:
    apply(cli, namespace, by_update(server), "d3JvbmctLXdyb25nLS13cm9uZy0td3Jvbmct")
    result = cli("check", "solver", "acme", NAME, "-n", namespace, *asks(server))
    assert result.status == 1
    assert result.err.startswith(f"error: {server.address} ")
    assert "added" not in result.out


def test_the_vendors_variable_moves_the_endpoint_in_the_command_too(
    cli: Cli, namespace: str, fake: FakeCloudflare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDFLARE_BASE_URL", fake.url)
    apply(cli, namespace, CLOUDFLARE, "expired")
    result = cli("check", "solver", "acme", NAME, "-n", namespace)
    assert result.status == 1
    assert result.err.startswith(
        "error: Cloudflare refused to list the zones: status 403, Invalid access token"
    )
    assert fake.calls.total() == 1


def test_a_record_that_is_not_seen_in_time_is_removed(
    cli: Cli, namespace: str, fake: FakeCloudflare, server: PowerDnsServer
) -> None:
    apply(cli, namespace, CLOUDFLARE, TOKEN)
    endpoint = ("--dns01-endpoint", f"cloudflare={fake.url}", "--timeout", "0")
    result = cli("check", "solver", "acme", NAME, "-n", namespace, *asks(server), *endpoint)
    assert result.status == 1
    assert f"has no _acme-challenge.{NAME} yet" in result.err
    assert "added" in result.out
    assert fake.values(f"_acme-challenge.{NAME}") == set()
    result = cli("check", "solver", "acme", "www.example.com", "-n", namespace, *asks(server), *endpoint)
    assert result.err.startswith("error: the account has no zone example.com; create the zone")


def test_a_page_is_served_and_fetched_by_the_command(
    cli: Cli, namespace: str, server: PowerDnsServer
) -> None:
    apply(cli, namespace, "{http01: {ingress: {}}}", "none")
    result = cli("check", "solver", "acme", "ns1.example.org", "-n", namespace)
    assert (result.status, result.err[:40]) == (1, "error: no HTTP-01 listener is running; s")
    port = str(free_port())
    listens = ("--http01-listen", f"127.0.0.1:{port}", "--http01-check-port", port)
    resolves = ("--acme-http01-solver-nameservers", server.address)
    result = cli("check", "solver", "acme", "ns1.example.org", "-n", namespace, *listens, *resolves)
    assert (result.status, result.err) == (0, "")
    assert "added    /.well-known/acme-challenge/" in result.out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("nothing", NAME), 'error: issuers.cert-manager.io "nothing" not found'),
        (("acme", NAME, "--solver", "7"), "error: there is no spec.acme.solvers[7]; it has 1"),
        (("acme", "192.0.2.1"), "error: no solver of the issuer fits 192.0.2.1; add one to"),
    ],
    ids=["no issuer", "no such solver", "no solver for the name"],
)
def test_what_cannot_be_checked_is_one_sentence(
    cli: Cli, namespace: str, words: tuple[str, ...], error: str
) -> None:
    apply(cli, namespace, CLOUDFLARE, "none")
    result = cli("check", "solver", *words, "-n", namespace)
    assert (result.status, result.out) == (1, "")
    assert result.err.startswith(error)
