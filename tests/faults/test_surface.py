"""Strangers at the door: requests made up from our own OpenAPI documents, and bytes that are no HTTP at all.

No answer is a 5xx but 503 and where Kubernetes itself answers so, every refusal is a Status, the server goes
on and its memory stays bounded. CERTWRIGHT_SOAK=n makes n requests of each operation, 20 at most.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.core.result import Ok

from certwright.kube.client.kubeconfig import load
from faults.server import CONFIG_MAPS, Server, running

_SOAK = min(int(os.environ.get("CERTWRIGHT_SOAK") or 0), 20)
_DOCUMENTS = (
    "apis/cert-manager.io/v1",
    "apis/apiextensions.k8s.io/v1",
    "apis/authorization.k8s.io/v1",
    "api/v1",
)
_EVERY = 1 if _SOAK else 8  # of which operations one is asked
_MOST_MEMORY_KB = 400_000
_TOGETHER = 20
_QUIET = settings(
    max_examples=_SOAK or 3,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """One that keeps all in memory."""
    async with running(tmp_path, "--store", "memory") as started:
        yield started


def check_answer(status: int, body: bytes, what: str) -> None:
    """What holds of every answer."""
    text = body.decode(errors="replace")
    assert status < 500 or status == 503 or is_as_kubernetes(status, text), f"{what}: {status} {text[:500]}"
    if status >= 400 and text.startswith("{"):
        document = json.loads(body)
        assert (document["kind"], document["code"]) == ("Status", status), f"{what}: {text[:500]}"
        assert document["message"], what


_AS_KUBERNETES = {
    500: re.compile(
        r"resourceVersion should not be set on objects to be created"
        r"|(metadata\.)?resourceVersion: expected a whole number.*"
        r"|content is not a list|failed to create (manager|typed patch object).*",
        re.DOTALL,
    ),
    504: re.compile(r"Timeout: Too large resource version: \d+, current: \d+"),
}
"""What Kubernetes itself answers with other codes, by its texts; the conformance tests hold us to them."""


def is_as_kubernetes(status: int, text: str) -> bool:
    """Whether the real server gives the same 5xx."""
    document = json.loads(text)
    texts = _AS_KUBERNETES.get(status)
    return texts is not None and bool(texts.fullmatch(document["message"]))


def check_memory(server: Server) -> None:
    """How much it ever took."""
    assert server.process is not None
    assert server.process.poll() is None, server.log.read_text()[-2000:]
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    assert peak < _MOST_MEMORY_KB, f"{peak} kB"
    assert "Traceback" not in server.log.read_text()


@pytest.mark.timeout(600 + 60 * _SOAK)
async def test_requests_made_up_from_the_documents_are_answered(server: Server, tmp_path: Path) -> None:
    known = load(tmp_path / "data" / "kubeconfig")
    (tmp_path / "ca.crt").write_bytes(known.ca_pem)
    documents = [(await server.ask("GET", f"/openapi/v3/{name}")).json for name in _DOCUMENTS]
    asked = await asyncio.to_thread(ask_all, documents, known.server, known.token, str(tmp_path / "ca.crt"))
    assert asked > 20
    check_memory(server)


def ask_all(documents: list[dict[str, Any]], url: str, token: str, ca: str) -> int:
    """Make up requests of the operations, and look at the answers; how many there were."""
    asked = 0
    with requests.Session() as session:
        session.trust_env = False
        session.headers["authorization"] = f"Bearer {token}"
        operations = (
            candidate
            for document in documents
            for candidate in schemathesis.openapi.from_dict(document).get_all_operations()
        )
        for number, result in enumerate(operations):
            if number % _EVERY:
                continue
            assert isinstance(result, Ok), result
            operation = result.ok()
            if operation.path.endswith("/proxy/{path}"):
                continue

            @_QUIET
            @given(case=operation.as_strategy())
            def ask(case: schemathesis.Case[Any]) -> None:
                nonlocal asked
                asked += 1
                # A watch has no end by itself.
                case.query = {**(case.query or {}), "timeoutSeconds": "1"}
                answer = case.call(base_url=url, session=session, verify=ca, timeout=200)
                check_answer(answer.status_code, answer.content, f"{case.method} {case.formatted_path}")

            ask()
    return asked


BYTES = st.one_of(
    st.binary(max_size=300),
    st.builds(
        b"%b %b HTTP/1.1\r\n%b\r\n\r\n%b".__mod__,
        st.tuples(
            st.sampled_from([b"GET", b"POST", b"PATCH", b"", b"G\0T", b"PRI", b"BREW"]),
            st.binary(max_size=50)
            | st.sampled_from([b"*", b"/", CONFIG_MAPS.encode(), b"http://x/", b"//%00"]),
            st.lists(
                st.sampled_from(
                    [
                        b"Host: x",
                        b"Content-Length: 5",
                        b"Content-Length: 7",
                        b"Content-Length: -1",
                        b"Content-Length: 99999999999999999999",
                        b"Transfer-Encoding: chunked",
                        b"Transfer-Encoding: gzip",
                        b"Content-Encoding: gzip",
                        b"Expect: 100-continue",
                        b"Connection: upgrade\r\nUpgrade: websocket",
                        b"Authorization: Bearer \xff\xfe",
                        b"Content-Type: \xff/\0",
                        b" folded: line",
                        b"Impersonate-User: \xe2\x80\xae",
                    ]
                )
                | st.binary(max_size=40),
                max_size=5,
            ).map(b"\r\n".join),
            st.sampled_from(
                [b"", b"12345", b"5\r\n12345\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n", b"\x1f\x8b\0\0"]
            ),
        ),
    ),
)


@pytest.mark.timeout(600 + _SOAK)
async def test_bytes_that_are_no_http_end_the_connection_and_nothing_else(
    server: Server, tmp_path: Path
) -> None:
    known = load(tmp_path / "data" / "kubeconfig")
    tls = ssl.create_default_context(cadata=known.ca_pem.decode())
    host, _, port = known.server.removeprefix("https://").rpartition(":")
    sent: list[bytes] = []

    @settings(_QUIET, max_examples=_SOAK * 20 or 60)
    @given(data=BYTES)
    def gather(data: bytes) -> None:
        sent.append(data)

    gather()

    async def tell(data: bytes) -> None:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
        try:
            async with asyncio.timeout(0.2):
                writer.write(data)
                await writer.drain()
                answer = await reader.read(65536)
        except (TimeoutError, OSError):
            answer = b""  # it waits for the rest
        finally:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()
        if answer:
            assert answer.startswith(b"HTTP/1.1 "), (data, answer)
            assert int(answer[9:12]) < 500 or int(answer[9:12]) in (501, 503), (data, answer)

    # Most wait for an answer that never comes: together, so that nobody waits for them.
    for start in range(0, len(sent), _TOGETHER):
        await asyncio.gather(*map(tell, sent[start : start + _TOGETHER]))
    assert (await server.ask("GET", "/readyz")).status == 200
    check_memory(server)
