"""Metrics of `certwright controllers` over HTTPS, read by curl."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner

from certwright.cli import metrics_flags
from certwright.cli.main import program
from cli.calls import Process
from support.real import require

Start = Callable[..., Process]
METRIC = "\n# TYPE leader_election_master_status gauge\n"
CA_FLAGS = (
    *("--metrics-dynamic-serving-ca-secret-namespace", "kube-system"),
    *("--metrics-dynamic-serving-ca-secret-name", "metrics-ca"),
    *("--metrics-dynamic-serving-dns-names", "metrics.example.org"),
)
FILES = ("--metrics-tls-cert-file=a", "--metrics-tls-private-key-file=b")
LISTEN = ("--metrics-listen-address", "127.0.0.1:0")


def curl(*words: str) -> subprocess.CompletedProcess[str]:
    command = [require("curl"), "-sS", "--max-time", "60", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_curl_reads_them_with_the_ca_in_the_secret_and_with_that_of_the_files(
    start: Start, tmp_path: Path
) -> None:
    server = start("serve", "--listen", "127.0.0.1:0", "--controllers", "")
    assert server.line()
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


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((*LISTEN, FILES[0]), "need each other"),
        ((*LISTEN, FILES[1]), "need each other"),
        ((*LISTEN, *CA_FLAGS[:4]), "--metrics-dynamic-serving-dns-names need each other"),
        ((*LISTEN, *CA_FLAGS, *FILES), "exclude each other"),
        (FILES, "a certificate for metrics needs --metrics-listen-address"),
        ((*FILES, "--metrics-listen-address=0"), "needs --metrics-listen-address"),
        (("--metrics-tls-min-version=VersionTLS10",), "write VersionTLS12 or VersionTLS13"),
        (("--metrics-tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA",), "is not supported; known are TLS_ECDHE_"),
        (("--metrics-dynamic-serving-leaf-duration=5s",), "is not between 1m and 8760h"),
        (("--metrics-dynamic-serving-leaf-duration=9000h",), "is not between 1m and 8760h"),
        (("--metrics-dynamic-serving-dns-names=a_b c",), "is neither a DNS name nor an IP address"),
    ],
)
def test_flags_without_sense_are_refused(flags: tuple[str, ...], words: str) -> None:
    outcome = CliRunner().invoke(program, ["controllers", *flags], prog_name="certwright")
    assert outcome.exit_code == 2
    assert words in outcome.stderr


def test_every_cipher_suite_is_known_to_openssl() -> None:
    listed = subprocess.run(
        [require("openssl"), "ciphers", "ALL"], capture_output=True, text=True, check=True
    )
    assert set(metrics_flags._CIPHERS.values()) <= set(listed.stdout.strip().split(":"))
