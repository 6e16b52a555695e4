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

from certwright.cli.main import program
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
        text = (EXAMPLES / "acme.yaml").read_text()
        line = next(one for one in text.splitlines() if one.strip().startswith("server: "))
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
        chain = read_chain((tmp_path / "certwright-export/default/web/tls.crt").read_bytes())
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
    ("words", "told"),
    [
        (("--http01-listen", "80"), "is not HOST:PORT, e.g. :80"),
        (("--tlsalpn01-listen", "::1:443"), "write an IPv6 address in brackets"),
        (("--max-concurrent-challenges", "0"), "0 is not in the range x>=1"),
        (("--dns01-check-retry-period", "soon"), "soon"),
    ],
)
def test_flags_without_sense_are_refused(words: tuple[str, str], told: str) -> None:
    outcome = CliRunner().invoke(program, ["serve", *words], prog_name="certwright")
    assert outcome.exit_code == 2
    assert told in outcome.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--dns01-recursive-nameservers", "192.0.2.1:dns"), "--dns01-recursive-nameservers: "),
        (("--acme-http01-solver-nameservers", "1.1.1.1,:53"), "--acme-http01-solver-nameservers: "),
        (("--tlsalpn01-backend", "127.0.0.1:1"), "it needs --tlsalpn01-listen"),
    ],
)
def test_settings_without_sense_are_told_at_the_start(
    start: Start, words: tuple[str, str], told: str
) -> None:
    outcome = start("serve", "--listen", "127.0.0.1:0", *words).rest()
    assert outcome.status == 1
    assert told in outcome.err


def test_an_idle_process_loads_no_library_for_servers_elsewhere_nor_for_rules() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert {"aiohttp", "dns", "cel_expr_python", "grpc"} & set(ended.stdout.split()) == set()
