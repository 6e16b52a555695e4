"""The flags of ACME, and what is not loaded without them."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from certwright import app
from certwright.cli.main import program
from certwright.controllers.acme.listeners import CannotListen, open_listeners
from certwright.pki.certificates import read_chain
from cli.calls import EXAMPLES, PATIENT, Process
from support.pebble import running_pebble

Start = Callable[..., Process]
_LOADED = """
import asyncio, sys, tempfile
from pathlib import Path
from certwright import app

async def main():
    with tempfile.TemporaryDirectory() as name:
        server = await app.start_server(app.ServeOptions(data_dir=Path(name), port=0))
        print(*sorted({module.partition(".")[0] for module in sys.modules}))
        await server.close()

asyncio.run(main())
"""


def test_the_example_is_issued_by_a_ca_on_this_machine(start: Start, tmp_path: Path) -> None:
    with running_pebble() as pebble:
        bundle = base64.b64encode(pebble.ca_bundle).decode()
        text = (EXAMPLES / "acme" / "acme.yaml").read_text()
        line = next(row for row in text.splitlines() if row.strip().startswith("server: "))
        manifest = tmp_path / "acme.yaml"
        manifest.write_text(text.replace(line, f"    server: {pebble.directory}\n    caBundle: {bundle}"))
        words = ("run", str(manifest), "--once", "--listen", "127.0.0.1:0", *PATIENT)
        flags = (
            "--http01-listen",
            f"127.0.0.1:{pebble.http_port}",
            "--http01-check-port",
            str(pebble.http_port),
        )
        servers = ("--acme-http01-solver-nameservers", pebble.names.address)
        outcome = start(*words, *flags, *servers).rest()
        assert outcome.status == 0, outcome
        chain = read_chain((tmp_path / "certwright-export/default/site/tls.crt").read_bytes())
        assert chain[0].dns_names == ("web.example.org",)


@pytest.mark.parametrize("flag", ["--http01-listen", "--tlsalpn01-listen"])
def test_a_listener_whose_port_is_taken_is_told(start: Start, flag: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = start("serve", "--listen", "127.0.0.1:0", flag, where).rest()
    assert outcome.status == 1
    assert outcome.err.startswith(f"error: {flag}: cannot listen on {where}: ")
    assert "stop the program that has it, or choose another address" in outcome.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--http01-listen", "80"), "is not HOST:PORT, e.g. :80"),
        (("--tlsalpn01-listen", "::1:443"), "write an IPv6 address in brackets"),
        (("--max-concurrent-challenges", "0"), "0 is not in the range x>=1"),
        (("--dns01-check-retry-period", "soon"), "soon"),
        (("--acme-http01-solver-extra-labels", "team"), "'team' is not a label; write e.g. team=web"),
        (("--acme-http01-solver-extra-labels", "a=b c"), "a valid label must be"),
    ],
)
def test_flags_without_sense_are_refused(words: tuple[str, str], message: str) -> None:
    outcome = CliRunner().invoke(program, ["serve", *words], prog_name="certwright")
    assert outcome.exit_code == 2
    assert message in outcome.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--dns01-recursive-nameservers", "192.0.2.1:dns"), "--dns01-recursive-nameservers: "),
        (("--dns01-recursive-nameservers", "https://a:b@1.1.1.1/"), "contains a user name or a password"),
        (
            ("--acme-http01-solver-nameservers", "https://1.1.1.1/"),
            "only --dns01-recursive-nameservers may name",
        ),
        (("--acme-http01-solver-nameservers", "1.1.1.1,:53"), "--acme-http01-solver-nameservers: "),
        (("--tlsalpn01-backend", "127.0.0.1:1"), "it needs --tlsalpn01-listen"),
    ],
)
def test_settings_without_sense_are_told_at_the_start(
    start: Start, words: tuple[str, str], message: str
) -> None:
    outcome = start("serve", "--listen", "127.0.0.1:0", *words).rest()
    assert outcome.status == 1
    assert message in outcome.err


def test_an_idle_process_loads_no_library_for_servers_elsewhere_nor_for_rules() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert {"aiohttp", "dns", "cel_expr_python", "grpc"} & set(ended.stdout.split()) == set()


@pytest.mark.parametrize(
    ("addresses", "listen", "problem"),
    [
        (("10.0.0.5",), None, "--http01-listen, which is missing"),
        (("node-1",), ("127.0.0.1", 0), "'node-1' is not an IP address; write e.g. 10.0.0.5"),
        (("0.0.0.0",), ("127.0.0.1", 0), "0.0.0.0 is no address that a proxy can connect to"),  # noqa: S104
        (("fe80::1",), ("127.0.0.1", 0), "fe80::1 is no address that a proxy can connect to"),
    ],
)
async def test_an_address_that_no_proxy_reaches_is_refused(
    addresses: tuple[str, ...], listen: tuple[str, int] | None, problem: str
) -> None:
    settings = app.AcmeSettings(http01_listen=listen, http01_cluster_addresses=addresses)
    with pytest.raises(CannotListen, match="--http01-cluster-address") as refused:
        await open_listeners(settings)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("service", "addresses", "problem"),
    [
        ("http01", ("10.0.0.5",), "'http01' is not NAMESPACE/NAME, e.g. certwright/certwright-http01"),
        ("a/b/c", ("10.0.0.5",), "'a/b/c' is not NAMESPACE/NAME"),
        ("a/b,c=d", ("10.0.0.5",), "'a/b,c=d' is not NAMESPACE/NAME"),
        ("a/b", (), "it needs --http01-cluster-address"),
    ],
)
async def test_a_service_of_replicas_that_cannot_be_followed_is_refused(
    service: str, addresses: tuple[str, ...], problem: str
) -> None:
    settings = app.AcmeSettings(
        http01_listen=("127.0.0.1", 0), http01_cluster_addresses=addresses, http01_cluster_service=service
    )
    with pytest.raises(CannotListen, match="--http01-cluster-service") as refused:
        await open_listeners(settings)
    assert problem in str(refused.value)


async def test_the_addresses_of_a_pod_are_those_of_its_listener() -> None:
    settings = app.AcmeSettings(
        http01_listen=("127.0.0.1", 0),
        http01_cluster_addresses=("10.0.0.5", "fd00:0::5", "10.0.0.5"),
        http01_cluster_service="certwright/certwright-http01",
        http01_labels={"team": "ops"},
        http01_exact_paths=False,
    )
    listeners = await open_listeners(settings)
    try:
        listener = listeners.options.cluster_listener
        assert listener is not None
        assert listener.addresses == ("10.0.0.5", "fd00::5")
        assert listener.service == ("certwright", "certwright-http01")
        assert listener.port > 0
        assert (listener.labels, listener.path_type) == ({"team": "ops"}, "ImplementationSpecific")
    finally:
        await listeners.close()
