"""Bodies in protobuf, as Go's clients send them, broken in every way; and headers about forms without sense.

CERTWRIGHT_SOAK=n sends n of each.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from certwright.admission import certificate_kinds
from certwright.kube.apiserver.protobuf import codec
from certwright.kube.apiserver.protobuf.wire import put_piece, put_varint
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import SystemClock
from certwright.kube.util.http_messages import Identity, Request
from support.memory import peak_kb, reset_peak

pytestmark = pytest.mark.every(3)

ADMIN = Identity("kubernetes-admin", groups=("system:masters", "system:authenticated"))
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_QUIET = settings(
    max_examples=int(os.environ.get("CERTWRIGHT_SOAK") or 150),
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
_MOST_GROWTH_KB = 200_000
_LABELS = {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["x.dev/y"]}
OBJECTS: dict[str, dict[str, Any]] = {
    "/api/v1/namespaces/default/configmaps": {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "data": {"a": "b", "c": "d"},
        "binaryData": {"e": "AAEC"},
    },
    "/api/v1/namespaces/default/secrets": {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "data": {"a": "AAEC"},
    },
    "/api/v1/namespaces/default/services": {
        "apiVersion": "v1",
        "kind": "Service",
        "spec": {"ports": [{"port": 80, "targetPort": "http"}], "selector": {"a": "b"}},
    },
    "/apis/coordination.k8s.io/v1/namespaces/default/leases": {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15},
    },
    "/apis/rbac.authorization.k8s.io/v1/clusterroles": {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    },
}
BODIES = {path: codec.encode({**obj, "metadata": {"name": "x", **_LABELS}}) for path, obj in OBJECTS.items()}
_HUGE = [
    put_varint(1 << 63),
    b"\xff" * 10,
    b"\x0a" + put_varint(1 << 31),
    b"\x0b" * 5_000,  # groups in groups
    put_piece(b"\x0a", b"\xff\xfe"),
    b"\x08\x01" * 5_000,
]


def broken(data: st.DataObject, body: bytes) -> bytes:
    """A body with some of it cut off, changed, doubled, or other things put in."""
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body)))
        to = min(len(body), at + data.draw(st.integers(0, 12)))
        new = data.draw(st.binary(max_size=8) | st.sampled_from(_HUGE) | st.just(body[at:] * 2))
        body = body[:at] + new + body[to:]
        if data.draw(st.booleans()):
            body = body[: data.draw(st.integers(0, len(body)))]
    # Without what says that this is protobuf, little of it would be looked at.
    return body if body.startswith(b"k8s\0") else b"k8s\0" + body[4:]


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    """One that keeps all in memory."""
    made = ApiServer(
        MemoryStore(), SystemClock(), authenticator=lambda _: None, extensions=certificate_kinds()
    )
    await made.start([])
    yield made
    await made.close()


async def check(server: ApiServer, method: str, path: str, body: bytes, **headers: str) -> int:
    """The status of the answer, which is no failure of the server's."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await server.handle(Request(method, path, named, body, ADMIN))
    assert answer.status < 500, (method, path, named, body, answer.body)
    return answer.status


async def check_all(server: ApiServer, bodies: list[tuple[str, bytes]]) -> None:
    """Create and replace objects by these bodies; the memory that it takes is bounded."""
    before = reset_peak()
    for path, body in bodies:
        await check(server, "POST", path, body, content_type=_PROTOBUF)
        await check(server, "PUT", f"{path}/x", body, content_type=_PROTOBUF, accept=_PROTOBUF)
        await check(server, "DELETE", f"{path}/x", body, content_type=_PROTOBUF)
    assert peak_kb() - before < _MOST_GROWTH_KB
    assert await check(server, "GET", "/readyz", b"") == 200


async def test_whole_bodies_are_taken(server: ApiServer) -> None:
    for path, body in BODIES.items():
        assert await check(server, "POST", path, body, content_type=_PROTOBUF) == 201


@pytest.mark.parametrize("path", BODIES)
async def test_broken_bodies_fail_for_who_sent_them(server: ApiServer, path: str) -> None:
    sent: list[tuple[str, bytes]] = []

    @_QUIET
    @given(data=st.data())
    def gather(data: st.DataObject) -> None:
        sent.append((path, broken(data, BODIES[path])))

    gather()
    await check_all(server, sent)


@pytest.mark.long  # bodies of megabytes
async def test_large_bodies_of_small_fields_take_bounded_memory(server: ApiServer) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    entry = put_piece(b"\x12", put_piece(b"\x0a", b"k") + put_piece(b"\x12", b"v"))
    label = put_piece(b"\x5a", put_piece(b"\x0a", b"k"))
    head = b"k8s\0" + put_piece(b"\x0a", put_piece(b"\x0a", b"v1") + put_piece(b"\x12", b"ConfigMap"))
    for content in (
        entry * 300_000,
        put_piece(b"\x0a", label * 500_000),
        b"\x78\x01" * 1_500_000,
        put_piece(b"\x0a", b"\x0a\x00" * 1_400_000),
    ):
        await check_all(server, [(path, head + put_piece(b"\x12", content))])


async def test_what_is_compressed_is_not_inflated(server: ApiServer) -> None:
    bomb = gzip.compress(bytes(100 << 20), 9)
    path = "/api/v1/namespaces/default/configmaps"
    for media in (_PROTOBUF, "application/json"):
        await check_all(server, [(path, bomb)])
        await check(server, "POST", path, bomb, content_type=media, content_encoding="gzip")


async def test_headers_about_forms_are_taken_or_refused(server: ApiServer) -> None:
    word = st.text(st.characters(max_codepoint=255), max_size=12) | st.sampled_from(
        [
            "application/json",
            _PROTOBUF,
            "application/yaml",
            "*/*",
            "as=Table",
            "g=meta.k8s.io",
            "v=v1",
            "q=9e9",
        ]
    )
    value = st.lists(word, max_size=12).map(";".join) | st.lists(word, max_size=300).map(",".join)
    sent: list[tuple[str, str]] = []

    @_QUIET
    @given(accept=value, content_type=value)
    def gather(accept: str, content_type: str) -> None:
        sent.append((accept, content_type))

    gather()
    path = "/api/v1/namespaces/default/configmaps"
    body = json.dumps({**OBJECTS[path], "metadata": {"name": "y"}}).encode()
    for accept, content_type in sent:
        await check(server, "GET", path, b"", accept=accept)
        await check(server, "GET", "/apis", b"", accept=accept)
        await check(server, "POST", path, body, accept=accept, content_type=content_type)
        await check(server, "PATCH", f"{path}/y", body, accept=accept, content_type=content_type)
        await asyncio.sleep(0)
