"""Flags of `serve` and `controllers`: mistakes are named at start, and nothing is loaded without them."""

from __future__ import annotations

import base64
import http.client
import os
import resource
import socket
import ssl
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import click
import pytest
import trustme

from certwright import app
from certwright.cli import acme_flags, metrics_flags
from certwright.cli.flags import flags_of, single
from certwright.controllers.acme.listeners import CannotListen, open_listeners
from certwright.pki.certificates import read_chain
from cli.calls import EXAMPLES, PATIENT, Start, serve
from support.pebble import running_pebble
from support.real import require, require_package

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


@pytest.mark.parametrize("flag", ["--listen", "--http01-listen", "--tlsalpn01-listen"])
def test_a_listener_whose_port_is_taken_is_told(start: Start, flag: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = start("serve", "--listen", "127.0.0.1:0", flag, where).rest()
    assert outcome.status == 1
    if flag == "--listen":
        port = where.rpartition(":")[2]
        assert outcome.err.startswith(f"error: port {port} on 127.0.0.1 is in use; ")
        return
    assert outcome.err.startswith(f"error: {flag}: cannot listen on {where}: ")
    assert "stop the program that has it, or choose another address" in outcome.err


def test_an_idle_process_loads_no_library_for_servers_elsewhere_nor_for_rules() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert {"aiohttp", "dns", "cel_expr_python", "hpack"} & set(ended.stdout.split()) == set()


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


def commands() -> dict[str, click.Command]:
    """A command for each option, with no other."""

    def nothing(**_: object) -> None: ...

    options = [flag.option(parameter) for parameter, flag in flags_of(acme_flags.PolicyFlags)]
    decorated = [click.command()(option(nothing)) for option in options]
    return {command.params[-1].opts[0]: command for command in decorated}


def refusal(option: str, *values: str) -> str:
    """What is wrong with these values of an option; empty: nothing."""
    words = [word for value in values for word in (option, value)]
    try:
        commands()[option].main(words, standalone_mode=False)
    except click.BadParameter as error:
        return error.message
    return ""


def test_a_plugin_that_is_not_installed() -> None:
    assert refusal("--dns01-plugin", "missing").startswith(
        "no installed package provides the plug-in `missing`"
    )


def test_providers_of_lexicon() -> None:
    require_package("lexicon")
    assert refusal("--dns01-lexicon", "hetzner, ovh", "powerdns") == ""
    assert "dns-lexicon has no provider `nope`" in refusal("--dns01-lexicon", "hetzner,nope")
    assert "`localzone` cannot be used" in refusal("--dns01-lexicon", "localzone")


def test_lexicon_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("certwright.acme.solvers.dns01.child.plugin.find_spec", lambda _name: None)
    message = refusal("--dns01-lexicon", "hetzner")
    assert message == "dns-lexicon is not installed; run `pip install 'certwright[lexicon]'`"


def test_an_option_without_a_value_is_not_quoted() -> None:
    assert refusal("--dns01-lexicon-option", "powerdns.pdns_server=https://dns.example") == ""
    for wrong in ("powerdns", "powerdns=x", "powerdns.=secret-value", ".x=secret-value"):
        message = refusal("--dns01-lexicon-option", wrong)
        assert "write PROVIDER.OPTION=VALUE" in message
        assert "secret-value" not in message


MARK = "x-kubernetes-pf-flowschema-uid"


def headers_of_ping(address: str, ca_file: Path) -> http.client.HTTPMessage:
    """The header fields of what client-go asks first."""
    host, _, port = address.removeprefix("https://").partition(":")
    connection = http.client.HTTPSConnection(
        host, int(port), context=ssl.create_default_context(cafile=str(ca_file)), timeout=200
    )
    with closing(connection):
        connection.request("HEAD", "/livez/ping")
        return connection.getresponse().headers


@pytest.mark.parametrize(
    "words",
    [
        (),
        (
            *("--enable-priority-and-fairness=false", "--max-requests-inflight", "0"),
            *("--max-mutating-requests-inflight", "7"),
        ),
    ],
    ids=["fair", "not fair"],
)
def test_clients_are_told_whether_the_server_is_fair(
    start: Start, tmp_path: Path, words: tuple[str, ...]
) -> None:
    process = start("serve", "--listen", "127.0.0.1:0", "--store", "memory", "--controllers", "", *words)
    line = process.line()
    assert line.startswith("certwright is ready at "), process.rest().err
    address = line.removeprefix("certwright is ready at ").partition(";")[0]
    headers = headers_of_ping(address, tmp_path / "certwright-data" / "pki" / "ca.crt")
    assert (MARK in headers) is (not words)


def test_serve_may_have_more_connections_than_the_shell_allows_at_first(tmp_path: Path) -> None:
    words = ("serve", "--listen", "127.0.0.1:0", "--store", "memory", "--controllers", "")
    with subprocess.Popen(
        ["/bin/sh", "-c", 'ulimit -Sn 200; exec "$@"', "sh", sys.executable, "-m", "certwright", *words],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("certwright is ready")
            soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        finally:
            process.terminate()
    assert soft > 200
    assert soft in (8192, hard)


METRIC = "\n# TYPE leader_election_master_status gauge\n"
CA_FLAGS = (
    *("--metrics-dynamic-serving-ca-secret-namespace", "kube-system"),
    *("--metrics-dynamic-serving-ca-secret-name", "metrics-ca"),
    *("--metrics-dynamic-serving-dns-names", "metrics.example.org"),
)
LISTEN = ("--metrics-listen-address", "127.0.0.1:0")


def curl(*words: str) -> subprocess.CompletedProcess[str]:
    command = [require("curl"), "-sS", "--max-time", "60", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_curl_reads_them_with_the_ca_in_the_secret_and_with_that_of_the_files(
    start: Start, tmp_path: Path
) -> None:
    server = serve(start, "--controllers", "")
    command = ("controllers", "--kubeconfig", "certwright-data/kubeconfig", *LISTEN)

    controllers = start(*command, *CA_FLAGS)
    url = controllers.line().removeprefix("metrics are at ")
    assert url.startswith("https://127.0.0.1:")
    port = url.removeprefix("https://127.0.0.1:").removesuffix("/metrics")
    ca = "jsonpath={.data.ca\\.crt}"
    outcome = start("get", "secret", "metrics-ca", "-n", "kube-system", "-o", ca).rest()
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(outcome.out))
    named = ("--cacert", str(tmp_path / "ca.crt"), "--connect-to", f"::127.0.0.1:{port}")
    assert METRIC in curl(*named, "https://metrics.example.org/metrics").stdout
    assert curl(*named, "https://metrics.example.org/livez").stdout == "ok"
    assert (
        "no alternative certificate subject name" in curl(*named, "https://other.example.org/metrics").stderr
    )
    assert METRIC not in curl(f"http://127.0.0.1:{port}/metrics").stdout
    controllers.end()

    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1")
    pair.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    pair.private_key_pem.write_to_path(tmp_path / "tls.key")
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    files = ("--metrics-tls-cert-file", "tls.crt", "--metrics-tls-private-key-file", "tls.key")
    limits = ("--metrics-tls-min-version=VersionTLS13", "--metrics-tls-cipher-suites=TLS_AES_128_GCM_SHA256")
    controllers = start(*command, *files, *limits)
    url = controllers.line().removeprefix("metrics are at ")
    trusting = ("--cacert", str(tmp_path / "ca.crt"))
    assert METRIC in curl(*trusting, url).stdout
    assert curl(*trusting, "--tls-max", "1.2", url).returncode == 35  # CURLE_SSL_CONNECT_ERROR
    controllers.end()
    server.end()


def test_every_cipher_suite_is_known_to_openssl() -> None:
    listed = subprocess.run(
        [require("openssl"), "ciphers", "ALL"], capture_output=True, text=True, check=True
    )
    assert set(metrics_flags._CIPHERS.values()) <= set(listed.stdout.strip().split(":"))


def test_a_flag_that_is_not_given_is_false() -> None:
    @click.command()
    @single("allow_http_servers", acme_flags.ALLOW_HTTP_SERVERS)
    def command(*, allow_http_servers: bool) -> bool:
        return allow_http_servers

    assert command.main([], standalone_mode=False) is False
