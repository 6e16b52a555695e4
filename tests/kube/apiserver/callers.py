"""A caller that speaks JSON to the real server over the memory store; and objects to send."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from certwright.kube.apiserver.auth.rbac import GROUP
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.store.contract import Store
from certwright.kube.util.clock import TestClock
from certwright.kube.util.http_messages import Identity, Request, Response, close_stream
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, generate
from support.waiting import until

Json = dict[str, Any]

ADMIN = Identity("kubernetes-admin", groups=("system:masters", "system:authenticated"))
EVE = Identity("eve", groups=("staff", "system:authenticated"))
SECRETS = "/api/v1/namespaces/default/secrets"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CERTIFICATES = "/apis/cert-manager.io/v1/namespaces/default/certificates"
RBAC = f"/apis/{GROUP}/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


@dataclass(slots=True)
class Answer:
    """A response, read."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        """The body as JSON."""
        document: Json = msgspec.json.decode(self.body)
        return document

    @property
    def message(self) -> str:
        """The sentence of a `Status`."""
        return str(self.json["message"])


class Stream:
    """A watch that a test reads event by event."""

    def __init__(self, response: Response) -> None:
        assert response.stream is not None, response.body
        self.response = response
        self._chunks = response.stream
        self._waiting: list[Json] = []

    async def next(self, timeout_s: float = 60.0) -> Json:
        """The next event."""
        while not self._waiting:
            chunk = await asyncio.wait_for(anext(self._chunks), timeout_s)
            self._waiting = [msgspec.json.decode(line) for line in chunk.splitlines()]
        return self._waiting.pop(0)

    async def names(self, count: int) -> list[tuple[str, str]]:
        """Type and name of the next events."""
        events = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]

    async def rest(self, timeout_s: float = 60.0) -> list[Json]:
        """All events until the stream ends."""
        events = list(self._waiting)
        async with asyncio.timeout(timeout_s):
            async for chunk in self._chunks:
                events += [msgspec.json.decode(line) for line in chunk.splitlines()]
        return events

    async def close(self) -> None:
        """Stop to watch."""
        await close_stream(self._chunks)


@dataclass(slots=True)
class Api:
    """Calls a server the way a client would, without a socket."""

    server: ApiServer
    clock: TestClock
    store: Store
    user: Identity | None = field(default=ADMIN)

    async def raw(self, method: str, target: str, body: bytes = b"", /, **headers: str) -> Response:
        """Any request; header names are written with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.server.handle(Request(method, target, headers=named, body=body, user=self.user))

    async def call(self, method: str, target: str, body: Any = None, /, **headers: str) -> Answer:
        """A request with a JSON body, answered whole."""
        raw = msgspec.json.encode(body) if body is not None else b""
        response = await self.raw(method, target, raw, **headers)
        content = response.body
        if response.stream is not None:
            content = b"".join([chunk async for chunk in response.stream])
        return Answer(response.status, response.headers, content)

    async def ok(self, method: str, target: str, body: Any = None, /, **headers: str) -> Json:
        """A request that must succeed; the object that comes back."""
        answer = await self.call(method, target, body, **headers)
        assert answer.status < 300, answer.body
        return answer.json

    async def merge(self, target: str, patch: Any) -> Json:
        """The object after a merge patch, which must succeed."""
        return await self.ok("PATCH", target, patch, content_type=MERGE)

    async def exists(self, target: str) -> bool:
        """Whether there is such an object."""
        return (await self.call("GET", target)).status == 200

    async def watch(self, target: str, **headers: str) -> Stream:
        """An open watch."""
        return Stream(await self.raw("GET", f"{target}{'&' if '?' in target else '?'}watch=true", **headers))

    async def settle(self) -> None:
        """Wait until the work behind the answers is done."""
        await asyncio.sleep(0)
        await until(lambda: self.server.idle)

    async def secret(self, name: str, namespace: str = "default", **metadata: Any) -> Json:
        """A small Secret."""
        body = {"metadata": {"name": name, **metadata}, "stringData": {"key": name}}
        return await self.ok("POST", f"/api/v1/namespaces/{namespace}/secrets", body)

    async def config_map(self, name: str, data: Mapping[str, str] | None = None, **metadata: Any) -> Json:
        """A ConfigMap."""
        body: Json = {"metadata": {"name": name, **metadata}}
        return await self.ok("POST", CONFIG_MAPS, body if data is None else {**body, "data": data})

    async def namespace(self, name: str, **labels: str) -> Json:
        """A Namespace."""
        return await self.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})

    async def certificate(self, name: str, **metadata: Any) -> Json:
        """A valid Certificate."""
        return await self.ok("POST", CERTIFICATES, certificate(name, **metadata))


def certificate(name: str, **metadata: Any) -> Json:
    """A valid Certificate, as a client would send it."""
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": {"name": name, **metadata},
        "spec": {"secretName": f"{name}-tls", "dnsNames": ["example.com"], "issuerRef": {"name": "ca"}},
    }


def signing_request() -> str:
    """A certificate signing request, as it stands in `spec.request`."""
    pem = build_csr(CsrPlan(common_name="r"), generate(KeyPlan.of("ECDSA")))
    return base64.b64encode(pem).decode()


def rule(verbs: str, resources: str = "", group: str = "", **more: Any) -> Json:
    """A rule of RBAC."""
    policy_rule: Json = {"verbs": verbs.split(), **more}
    if resources:
        policy_rule |= {"apiGroups": [group], "resources": resources.split()}
    return policy_rule


async def grant(api: Api, *rules: Json, namespace: str = "", user: str = "eve") -> None:
    """Bind a new role to `user`, everywhere or in one namespace."""
    name = f"r{api.store.revision}"
    where = f"{RBAC}/namespaces/{namespace}/" if namespace else f"{RBAC}/cluster"
    body = {"metadata": {"name": name}, "rules": rules}
    await api.ok("POST", f"{where}roles", body)
    ref = {
        "apiGroup": GROUP,
        "kind": "Role" if namespace else "ClusterRole",
        "name": name,
    }
    bound = {"kind": "User", "name": user, "apiGroup": GROUP}
    await api.ok(
        "POST", f"{where}rolebindings", {"metadata": {"name": name}, "roleRef": ref, "subjects": [bound]}
    )


def as_user(api: Api, user: Identity) -> Api:
    """The same server for another user."""
    return Api(api.server, api.clock, api.store, user)


def rule_for(resources: str, *operations: str, group: str = "", version: str = "*", **more: Any) -> Json:
    """A rule of a webhook or a policy for resources of a group; without `operations`, for all of them."""
    about = {"apiGroups": [group], "apiVersions": [version], "resources": [resources]}
    return {**about, "operations": list(operations or "*"), **more}


def thing_crd(*, status: bool = True, scope: str = "Namespaced") -> Json:
    """A CustomResourceDefinition that has nothing to do with certificates."""
    schema: Json = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1},
                    "colour": {"type": "string", "default": "red"},
                    "owner": {"type": "string"},
                },
            },
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    }
    version: Json = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    version["selectableFields"] = [{"jsonPath": ".spec.owner"}]
    if status:
        version["subresources"] = {"status": {}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.dev"},
        "spec": {"group": "test.dev", "scope": scope, "names": names, "versions": [version]},
    }


THINGS = "/apis/test.dev/v1/namespaces/default/things"
THING: Json = {"apiVersion": "test.dev/v1", "kind": "Thing"}

StartApi = Callable[..., Awaitable[Api]]
"""Starts a server: see the fixture of that name."""
