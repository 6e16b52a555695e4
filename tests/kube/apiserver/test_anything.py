"""Whatever is sent, the server answers, and never with its own fault."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from certwright.admission import certificate_kinds
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import TestClock
from certwright.kube.util.http_messages import Request
from certwright.resources.crds import custom_resource_definitions
from kube.apiserver.callers import (
    ADMIN,
    CRDS,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Api,
    Json,
    certificate,
    thing_crd,
)

pytestmark = pytest.mark.every(3)

JSON = "application/json"
IN_DEFAULT = "/namespaces/default/"
COLLECTIONS = {
    "/api/v1/namespaces": "Namespace",
    f"/api/v1{IN_DEFAULT}secrets": "Secret",
    f"/api/v1{IN_DEFAULT}configmaps": "ConfigMap",
    f"/api/v1{IN_DEFAULT}events": "Event",
    f"/api/v1{IN_DEFAULT}serviceaccounts": "ServiceAccount",
    f"/apis/coordination.k8s.io/v1{IN_DEFAULT}leases": "Lease",
    CRDS: "CustomResourceDefinition",
    f"/apis/cert-manager.io/v1{IN_DEFAULT}certificates": "Certificate",
    f"/apis/cert-manager.io/v1{IN_DEFAULT}certificaterequests": "CertificateRequest",
    f"/apis/cert-manager.io/v1{IN_DEFAULT}issuers": "Issuer",
    "/apis/cert-manager.io/v1/clusterissuers": "ClusterIssuer",
    f"/apis/acme.cert-manager.io/v1{IN_DEFAULT}orders": "Order",
    f"/apis/acme.cert-manager.io/v1{IN_DEFAULT}challenges": "Challenge",
}
# Names that mean something somewhere, so that the examples get deeper than the first check.
_WORDS = """
spec status metadata data stringData type name namespace labels annotations finalizers ownerReferences uid
generateName resourceVersion secretName dnsNames issuerRef duration privateKey request conditions names
versions schema openAPIV3Schema properties group scope ca acme selfSigned involvedObject secrets kind
creationTimestamp
deletionTimestamp immutable leaseDurationSeconds renewTime plural items required
"""
NAMES = st.sampled_from(_WORDS.split())
SCALARS = st.sampled_from(
    [None, True, 0, -1, 1.5, 2**70, "", "a", "a.b", "2026-01-01T00:00:00Z", "90m", "YQ==", "\x00"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=14,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)
_LARGE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
"""An example is several bodies, because starting a server takes longer than the server's answers."""


async def _served() -> ApiServer:
    server = ApiServer(
        MemoryStore(), TestClock(), authenticator=lambda _: None, extensions=certificate_kinds()
    )
    await server.start(custom_resource_definitions())
    return server


async def _send(
    server: ApiServer, method: str, target: str, body: Any, media: str = "application/json"
) -> None:
    raw = msgspec.json.encode(body)
    request = Request(method, target, headers={"content-type": media}, body=raw, user=ADMIN)
    response = await server.handle(request)
    assert response.status != 500, (method, target, body, response.body)
    if method == "POST" and response.status == 201:
        name = msgspec.json.decode(response.body)["metadata"]["name"]
        for accept in ("application/json", "application/json;as=Table;g=meta.k8s.io;v=v1"):
            got = await server.handle(
                Request("GET", f"{target}/{name}", headers={"accept": accept}, user=ADMIN)
            )
            assert got.status != 500, (target, body, got.body)


@pytest.mark.parametrize("path", COLLECTIONS)
def test_any_object_gets_an_answer(path: str) -> None:
    @given(st.lists(OBJECTS, min_size=5, max_size=5))
    @settings(max_examples=5, deadline=None, suppress_health_check=_LARGE)
    def check(bodies: list[Json]) -> None:
        async def run() -> None:
            server = await _served()
            for number, body in enumerate(bodies):
                await _send(server, "POST", path, {"metadata": {"name": f"x{number}"}, **body})
                await _send(server, "POST", path, {**body, "metadata": {"generateName": "x-"}})
            await server.close()

        asyncio.run(run())

    check()


@pytest.mark.parametrize("media", [MERGE, STRATEGIC, JSON_PATCH])
def test_any_patch_gets_an_answer(media: str) -> None:
    paths = st.lists(NAMES | st.sampled_from(["0", "-", ""]), max_size=3).map(
        lambda p: "".join(f"/{n}" for n in p)
    )
    operation = st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "test", "move", "copy"]), "path": paths},
        optional={"value": VALUES, "from": paths},
    )
    patches = st.lists(operation, max_size=3) if media == JSON_PATCH else OBJECTS

    @given(st.lists(patches, min_size=5, max_size=5))
    @settings(max_examples=12, deadline=None, suppress_health_check=_LARGE)
    def check(several: list[Any]) -> None:
        async def run() -> None:
            server = await _served()
            secrets, certificates = (
                f"/api/v1{IN_DEFAULT}secrets",
                "/apis/cert-manager.io/v1/namespaces/default/certificates",
            )
            await _send(server, "POST", CRDS, thing_crd())
            for number, patch in enumerate(several):
                secret = {"metadata": {"name": f"x{number}"}, "data": {"a": "YQ=="}}
                await _send(server, "POST", secrets, secret)
                await _send(server, "POST", certificates, certificate(f"x{number}"))
                for target in (
                    f"{secrets}/x{number}",
                    f"{certificates}/x{number}",
                    f"{certificates}/x{number}/status",
                    "/api/v1/namespaces/default",
                    f"{CRDS}/things.test.dev",
                ):
                    await _send(server, "PATCH", target, patch, media)
            await server.close()

        asyncio.run(run())

    check()


_LONG = "1" * 200_000
LONG_TEXTS: dict[str, Json] = {
    "label": {"metadata": {"labels": {"a": _LONG}}},
    "key": {"metadata": {"labels": {_LONG: ""}}},
    "annotation": {"metadata": {"annotations": {_LONG: ""}}},
    "time": {"metadata": {"creationTimestamp": _LONG}},
}


@pytest.mark.parametrize("body", LONG_TEXTS.values(), ids=LONG_TEXTS.keys())
async def test_long_texts_that_are_refused_are_not_kept(api: Api, body: Json) -> None:
    raw = msgspec.json.encode({**body, "metadata": {"name": "x", **body.get("metadata", {})}})

    async def send(start: int) -> None:
        for number in range(start, start + 20):
            # Of the same length, and each another.
            sent = raw.replace(b"1" * 5, b"%05d" % number, 1)
            answer = await api.raw("POST", "/api/v1/namespaces/default/configmaps", sent)
            assert answer.status in (400, 422), answer.body

    await send(10_000)
    gc.collect()
    tracemalloc.start()
    try:
        await send(20_000)
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 10 * len(_LONG), "half of what was sent"
