"""What `serve` is told of how many requests it answers at a time."""

from __future__ import annotations

import http.client
import os
import resource
import ssl
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from cli.calls import Process

Start = Callable[..., Process]
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


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--max-requests-inflight", "0"), "must be above 0, unless --enable-priority-and-fairness=false"),
        (("--max-mutating-requests-inflight", "-1"), "-1 is not in the range x>=0"),
    ],
)
def test_a_bound_that_answers_nobody_is_refused(start: Start, words: tuple[str, ...], sentence: str) -> None:
    outcome = start("serve", "--listen", "127.0.0.1:0", *words).rest()
    assert outcome.status != 0
    assert sentence in outcome.err


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
