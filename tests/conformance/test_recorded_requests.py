"""Every request that real clients were seen to send is answered as Kubernetes answered it.

`recorded.tsv` has one line for each shape of a request of cert-manager 1.21.1 (client-go 0.36), kubectl 1.36
and cmctl, with all statuses by which Kubernetes 1.36 answered it. `…` stands for what differs from request to
request, `{ns}` and `{name}` for a namespace and a name.
"""

from __future__ import annotations

import base64
import csv
import json
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp
import pytest
import pytest_asyncio
from yarl import URL

from certwright.admission import certificate_kinds
from certwright.app import tls_identity
from certwright.kube.apiserver.http.https import serve_https
from certwright.kube.apiserver.protobuf import codec
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import TestClock
from certwright.kube.util.http_messages import Request, Response
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, generate
from certwright.resources.crds import custom_resource_definitions
from kube.apiserver.callers import ADMIN
from support.connections import all_closed

Json = dict[str, Any]
pytestmark = pytest.mark.asyncio(loop_scope="module")
PROTOBUF = "application/vnd.kubernetes.protobuf"


class Recorded(NamedTuple):
    """A line of `recorded.tsv`. `body` is the end of the request's content type."""

    client: str
    method: str
    path: str
    query: str
    accept: str
    body: str
    statuses: str


with Path(__file__).with_name("recorded.tsv").open() as lines:
    REQUESTS = [Recorded(**line) for line in csv.DictReader(lines, delimiter="\t")]


@dataclass(slots=True)
class Served:
    """A server behind TLS, without controllers, and a session that trusts it."""

    url: str
    session: aiohttp.ClientSession

    async def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
        """One request, read to the end of its first line where it is answered by a stream."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = URL(self.url + target, encoded=True)
        async with self.session.request(method, url, data=body or None, headers=named) as got:
            watched = "watch=true" in target
            content = await got.content.readline() if watched and "sendInitial" in target else b""
            if not watched:
                content = await got.read()
            return Answer(got.status, dict(got.headers), content)

    async def ok(self, method: str, target: str, obj: Any = None) -> Json:
        """A request in JSON that must succeed."""
        body = json.dumps(obj).encode() if obj is not None else b""
        answer = await self.ask(method, target, body, content_type="application/json")
        assert answer.status < 300, answer
        document: Json = json.loads(answer.body)
        return document


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """One server for all requests."""
    folder: Path = tmp_path_factory.mktemp("recorded")
    store, identity = (
        MemoryStore(),
        tls_identity.load_or_make(tls_identity.Settings(folder, "127.0.0.1"), now=datetime.now(UTC)),
    )
    server = ApiServer(store, TestClock(), authenticator=lambda _: None, extensions=certificate_kinds())
    await server.start(custom_resource_definitions())

    async def handle(request: Request) -> Response:
        request.user = ADMIN
        return await server.handle(request)

    face = await serve_https(
        handle,
        host="127.0.0.1",
        port=0,
        certfile=identity.cert_path,
        keyfile=identity.key_path,
        client_ca_file=None,
    )
    context = ssl.create_default_context(cadata=identity.ca_pem.decode())
    connector = aiohttp.TCPConnector(ssl=context)
    try:
        async with all_closed(), aiohttp.ClientSession(connector=connector) as session:
            yield Served(f"https://127.0.0.1:{face.port}", session)
    finally:
        await face.close()
        await server.close()
        await store.close()


def _signing_request() -> str:
    pem = build_csr(CsrPlan(common_name="r"), generate(KeyPlan.of("ECDSA")))
    return base64.b64encode(pem).decode()


_SPECS: dict[str, Json] = {
    "leases": {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}},
    "secrets": {"type": "Opaque", "data": {"tls.crt": "eA=="}},
    "configmaps": {"data": {"a": "1"}},
    "serviceaccounts": {},
    "issuers": {"spec": {"selfSigned": {}}},
    "certificates": {"spec": {"secretName": "c-tls", "dnsNames": ["a.b"], "issuerRef": {"name": "self"}}},
    "certificaterequests": {"spec": {"request": _signing_request(), "issuerRef": {"name": "self"}}},
    "events": {
        "involvedObject": {"kind": "Certificate", "name": "c", "namespace": "default"},
        "reason": "Seen",
        "type": "Normal",
    },
    "selfsubjectaccessreviews": {
        "spec": {"resourceAttributes": {"namespace": "default", "verb": "create", "resource": "secrets"}}
    },
    "token": {"spec": {"expirationSeconds": 3600}},
}
_KINDS = {
    "leases": "Lease",
    "secrets": "Secret",
    "configmaps": "ConfigMap",
    "serviceaccounts": "ServiceAccount",
    "issuers": "Issuer",
    "certificates": "Certificate",
    "certificaterequests": "CertificateRequest",
    "events": "Event",
    "selfsubjectaccessreviews": "SelfSubjectAccessReview",
    "token": "TokenRequest",
}
_PATCHES: dict[str, Any] = {
    "json-patch+json": [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}],
    "merge-patch+json": {"metadata": {"labels": {"a": "b"}}},
    "strategic-merge-patch+json": {"metadata": {"labels": {"a": "b"}}},
}


class Replay:
    """One recorded request, made again such that `status` is what it must be answered with."""

    def __init__(self, served: Served, recorded: Recorded, status: int, name: str) -> None:
        self._served = served
        self._recorded = recorded
        self._status = status
        self._name = name
        self._path = recorded.path.replace("{ns}", "default").replace("{name}", name)
        self._path = self._path.replace("{group}", "cert-manager.io").replace("{version}", "v1")
        parts = recorded.path.split("/")
        self._plural = next((part for part in reversed(parts) if part in _SPECS), "")
        self._api_version = "authentication.k8s.io/v1" if self._plural == "token" else self._version(parts)

    @staticmethod
    def _version(parts: list[str]) -> str:
        return parts[2] if parts[1] == "api" and len(parts) > 2 else "/".join(parts[2:4])

    def _object(self, *, named: bool = True) -> Json:
        kind = {"apiVersion": self._api_version, "kind": _KINDS[self._plural]}
        return {**kind, "metadata": {"name": self._name} if named else {}, **_SPECS[self._plural]}

    async def run(self) -> Answer:
        """Prepare the server, and ask."""
        await self._prepare()
        headers = {"accept": self._recorded.accept}
        if self._recorded.body:
            headers["content_type"] = f"application/{self._recorded.body}"
        if self._status == 304:
            first = await self._served.ask("GET", self._target(), b"", **headers)
            headers["if_none_match"] = first.headers["Etag"]
        return await self._served.ask(self._recorded.method, self._target(), await self._body(), **headers)

    async def _prepare(self) -> None:
        """Have the object there that the answer speaks of."""
        if self._plural == "token":
            meta = {"metadata": {"name": self._name}}
            await self._served.ok("POST", "/api/v1/namespaces/default/serviceaccounts", meta)
        elif self._plural and (self._status in (200, 409)) and "{ns}" in self._recorded.path:
            where = self._path.partition(f"/{self._plural}")[0] + f"/{self._plural}"
            await self._served.ok("POST", where, self._object())

    def _target(self) -> str:
        values = {"timeout": "32s", "timeoutSeconds": "300", "resourceVersion": "", "fieldManager": "tester"}
        pairs = [pair.partition("=") for pair in self._recorded.query.split("&") if pair]
        query = "&".join(
            f"{key}={quote(values[key] if value == '…' else value.replace('…', 'some'), safe='')}"
            for key, _, value in pairs
        )
        return f"{self._path}?{query}" if query else self._path

    async def _body(self) -> bytes:
        recorded = self._recorded
        if not recorded.body:
            return b""
        if recorded.method == "DELETE":
            options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
            return self._encoded(options)
        if recorded.method == "PATCH":
            applied = self._object() if recorded.body == "apply-patch+yaml" else None
            return json.dumps(applied or _PATCHES[recorded.body]).encode()
        if recorded.method == "PUT":
            return await self._replacement()
        return self._encoded(self._object(named=self._plural not in ("selfsubjectaccessreviews", "token")))

    async def _replacement(self) -> bytes:
        obj = await self._served.ok("GET", self._path.removesuffix("/status"))
        if self._path.endswith("/status"):
            message = {"type": "Ready", "status": "True", "reason": "Tested", "message": "x"}
            obj["status"] = {"conditions": [{**message, "lastTransitionTime": "2026-11-21T00:00:00Z"}]}
        if self._status == 409:
            change = {"metadata": {"labels": {"somebody": "else"}}}
            path = self._path.removesuffix("/status")
            media = "application/merge-patch+json"
            await self._served.ask("PATCH", path, json.dumps(change).encode(), content_type=media)
        return self._encoded(obj)

    def _encoded(self, obj: Json) -> bytes:
        if self._recorded.body == PROTOBUF.removeprefix("application/"):
            return codec.encode(obj)
        return json.dumps(obj).encode()


def _each() -> Iterator[Any]:
    for at, recorded in enumerate(REQUESTS):
        for status in map(int, recorded.statuses.split()):
            words = f"{at}-{recorded.client}-{recorded.method}-{recorded.path}-{status}"
            yield pytest.param(recorded, status, f"r{at}-{status}", id=re.sub(r"[^A-Za-z0-9.]+", "-", words))


@pytest.mark.parametrize(("recorded", "status", "name"), list(_each()))
async def test_a_recorded_request(served: Served, recorded: Recorded, status: int, name: str) -> None:
    answer = await Replay(served, recorded, status, name).run()
    assert answer.status == status, answer.body
    if status < 300 and recorded.method != "HEAD":
        _check_form(recorded, answer)


def _check_form(recorded: Recorded, answer: Answer) -> None:
    """Whether the answer has the form that the client can read."""
    # One media type has an older name, with a mark that none may have.
    accept = recorded.accept.replace("@", ".")
    media = answer.headers["Content-Type"].partition(";")[0]
    assert media in accept or "*/*" in accept, (media, accept)
    if media != "application/json" or not answer.body:
        return
    content = json.loads(answer.body)
    if "sendInitialEvents" in recorded.query:
        assert content["type"] in ("ADDED", "BOOKMARK")
        content = content["object"]
    if "as=Table" in accept and "watch" not in recorded.query:
        assert content["kind"] == "Table"
    if "as=PartialObjectMetadata" in accept:
        assert content["kind"] == "PartialObjectMetadata"
