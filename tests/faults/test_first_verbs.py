"""Every verb and representation on several connections together, in a process that has served no request; and
the first request that is decided by policies and match conditions, whose compilation takes long."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from certwright.kube.apiserver.protobuf import codec
from faults.every_kind import resources, root_of, valid_object
from faults.server import CONFIG_MAPS, Server, config_map, running

Json = dict[str, Any]

_CONNECTIONS = 2
"""For each kind: some 60 connections in all."""
_WITHIN_S = 200.0
_JSON, _PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"
_META = ";as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
_CUSTOM = frozenset({"cert-manager.io", "acme.cert-manager.io", "certwright.io"})
_NAMED_BY_SPEC = frozenset({"customresourcedefinitions", "apiservices"})
"""The spec decides the name of these: they cannot have a generated one."""
_ORDERS, _CONTROLLERS = ("in step", "mixed"), ("", "*")
_COMBINATIONS = list(
    itertools.product(_ORDERS, _CONTROLLERS)
    if os.environ.get("CERTWRIGHT_SOAK")
    else zip(_ORDERS, _CONTROLLERS, strict=True)
)
"""Each of both once for each store; CERTWRIGHT_SOAK=1 combines each order with each choice of controllers."""


@dataclass(slots=True)
class Subject:
    """The requests of one connection about its own object."""

    server: Server
    collection: str
    body: Json
    number: int
    custom: bool
    generates: bool
    generated: str = ""

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.name}"

    @property
    def representations(self) -> tuple[str, ...]:
        """The representations of one object that a client can ask for."""
        custom = (_JSON, _TABLE, _JSON + _META.format(""), _PROTOBUF + _META.format(""))
        return custom if self.custom else (*custom, _PROTOBUF)

    async def send(
        self, method: str, path: str, body: bytes = b"", sent: str = _JSON, accept: str = _JSON
    ) -> tuple[int, bytes]:
        headers = {"content-type": sent, "accept": accept}
        limit = aiohttp.ClientTimeout(total=_WITHIN_S)
        session = self.server.session
        async with session.request(method, path, data=body, headers=headers, timeout=limit) as response:
            return response.status, await response.read()

    async def expect(self, status: int, method: str, path: str, *parts: Any, **headers: Any) -> bytes:
        """One request that has that result."""
        code, body = await self.send(method, path, *parts, **headers)
        assert code == status, (method, path, parts, headers, code, body[:500])
        return body

    def encode(self, body: Json, number: int) -> tuple[bytes, str]:
        """The body in JSON, or in protobuf where the kind has that form and the number is odd."""
        if number % 2 and not self.custom:
            return codec.encode(body), _PROTOBUF
        return json.dumps(body).encode(), _JSON


async def create(subject: Subject) -> None:
    body, form = subject.encode(subject.body, subject.number)
    await subject.expect(201, "POST", subject.collection, body, form)


async def read(subject: Subject) -> None:
    for accept in subject.representations:
        await subject.expect(200, "GET", subject.path, accept=accept)


async def read_lists(subject: Subject) -> None:
    for accept in subject.representations:
        accept = accept.replace("PartialObjectMetadata", "PartialObjectMetadataList")
        for query in ("", "?limit=1", "?labelSelector=absent%3Dyes", "?resourceVersion=0"):
            await subject.expect(200, "GET", subject.collection + query, accept=accept)


async def watch(subject: Subject) -> None:
    query = f"?watch=true&fieldSelector=metadata.name%3D{subject.name}"
    for accept in subject.representations:
        async with streaming(subject, query, accept) as lines:
            async with asyncio.timeout(_WITHIN_S):
                while subject.name.encode() not in await anext(lines):
                    pass


@asynccontextmanager
async def streaming(subject: Subject, query: str, accept: str) -> AsyncIterator[AsyncIterator[bytes]]:
    """A watch, as pieces of its body."""
    limit = aiohttp.ClientTimeout(total=_WITHIN_S)
    headers = {"accept": f"{accept};stream=watch" if accept.startswith(_PROTOBUF) else accept}
    address = subject.collection + query
    async with subject.server.session.get(address, headers=headers, timeout=limit) as response:
        assert response.status == 200, (address, accept, await response.text())
        yield response.content.iter_any()


async def merge(subject: Subject) -> None:
    await _patch(subject, "application/merge-patch+json", {"metadata": {"labels": {"merge": "done"}}})


async def strategic(subject: Subject) -> None:
    status = 415 if subject.custom else 200
    body = json.dumps({"metadata": {"labels": {"strategic": "done"}}}).encode()
    await subject.expect(status, "PATCH", subject.path, body, "application/strategic-merge-patch+json")


async def json_patch(subject: Subject) -> None:
    change = [{"op": "add", "path": "/metadata/annotations", "value": {"json-patch": "done"}}]
    await _patch(subject, "application/json-patch+json", change)


async def apply(subject: Subject) -> None:
    known = {key: subject.body[key] for key in ("apiVersion", "kind")}
    change = known | {"metadata": {"name": subject.name, "labels": {"apply": "done"}}}
    await _patch(subject, "application/apply-patch+yaml", change, query="?fieldManager=applier")


async def _patch(subject: Subject, form: str, change: Any, query: str = "") -> None:
    await subject.expect(200, "PATCH", subject.path + query, json.dumps(change).encode(), form)


async def update(subject: Subject) -> None:
    while True:
        obj = json.loads(await subject.expect(200, "GET", subject.path))
        obj["metadata"].setdefault("labels", {})["update"] = "done"
        body, form = subject.encode(obj, subject.number + 1)
        status, text = await subject.send("PUT", subject.path, body, form)
        if status != 409:
            assert status == 200, (subject.path, text[:500])
            return


async def generate_name(subject: Subject) -> None:
    if not subject.generates:
        return
    body = subject.body | {"metadata": {"generateName": f"{subject.name}-"}}
    sent, form = subject.encode(body, subject.number)
    subject.generated = json.loads(await subject.expect(201, "POST", subject.collection, sent, form))[
        "metadata"
    ]["name"]
    await subject.expect(201, "POST", subject.collection + "?dryRun=All", sent, form)


STEPS: tuple[Callable[[Subject], Awaitable[None]], ...] = (
    read,
    read_lists,
    watch,
    merge,
    strategic,
    json_patch,
    apply,
    update,
    generate_name,
)


async def delete(subject: Subject) -> None:
    """Delete the object with the generated name; a finalizer may keep it for a while."""
    if subject.generated:
        path = f"{subject.collection}/{subject.generated}"
        status, body = await subject.send("DELETE", path)
        assert status in (200, 202), (path, body[:500])
        status, body = await subject.send("GET", path)
        assert status == 404 or "deletionTimestamp" in json.loads(body)["metadata"], (path, status)


async def is_as_written(subject: Subject) -> None:
    """The stored object has what every request wrote."""
    obj = json.loads(await subject.expect(200, "GET", subject.path))
    verbs = ["merge", "apply", "update"] + ([] if subject.custom else ["strategic"])
    assert {verb: obj["metadata"]["labels"].get(verb) for verb in verbs} == dict.fromkeys(verbs, "done")
    assert obj["metadata"]["annotations"]["json-patch"] == "done", subject.path
    for field in ("spec", "data", "rules", "webhooks"):
        expected = subject.body.get(field, {})
        assert not expected or contains(obj[field], expected), (subject.path, field, obj[field])


def contains(actual: Any, expected: Any) -> bool:
    """Whether all that is expected is there, beside defaults."""
    if isinstance(expected, dict):
        return all(key in actual and contains(actual[key], value) for key, value in expected.items())
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(map(contains, actual, expected))
    return bool(actual == expected)


async def subjects(server: Server) -> list[Subject]:
    """Objects of every kind that is stored, several of each."""
    made: list[Subject] = []
    for group in dict.fromkeys(group for group, _ in resources()):
        served = await resources_of(server, group)
        for plural in (plural for owner, plural in resources() if owner == group):
            resource = served[plural]
            if "watch" not in resource["verbs"]:
                continue
            root = root_of(group)
            path = f"{root}/namespaces/default/{plural}" if resource["namespaced"] else f"{root}/{plural}"
            for number in range(_CONNECTIONS):
                body = valid_object(group, plural, resource["kind"], number)
                made.append(
                    Subject(server, path, body, number, group in _CUSTOM, plural not in _NAMED_BY_SPEC)
                )
    return made


@pytest.mark.parametrize(("order", "controllers"), _COMBINATIONS, ids=" with controllers=".join)
async def test_every_verb_is_first_used_by_several_connections(
    tmp_path: Path, store: tuple[str, ...], controllers: str, order: str
) -> None:
    async with running(tmp_path, *store, "--controllers", controllers) as server:
        await connect(server)
        every = await subjects(server)
        await asyncio.gather(*map(create, every))
        if order == "in step":
            for step in STEPS:
                await asyncio.gather(*map(step, every))
        else:
            await asyncio.gather(*(run(subject, number) for number, subject in enumerate(every)))
        await asyncio.gather(*map(delete, every))
        await asyncio.gather(*map(is_as_written, every))
        assert server.process is not None
        assert server.process.poll() is None


async def run(subject: Subject, first: int) -> None:
    """All steps one after the other, beginning with a step of its own."""
    for number in range(len(STEPS)):
        await STEPS[(first + number) % len(STEPS)](subject)


GROUP = "/apis/admissionregistration.k8s.io/v1"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
DEMANDS = [{"expression": f"object.data.all(k, size(object.data[k]) < {size})"} for size in range(9, 30)]
POLICY: Json = {
    "metadata": {"name": "sizes"},
    "spec": {"matchConstraints": {"resourceRules": [RULE]}, "validations": DEMANDS},
}
BINDING: Json = {
    "metadata": {"name": "sizes"},
    "spec": {"policyName": "sizes", "validationActions": ["Deny"]},
}
HOOK: Json = {
    "name": "absent.example.org",
    "clientConfig": {"service": {"name": "none", "namespace": "default"}},
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "rules": [RULE],
    "matchConditions": [{"name": "large", "expression": "!object.data.all(k, size(object.data[k]) < 9)"}],
}


async def test_the_first_request_after_a_start_is_decided_as_the_second_is(tmp_path: Path) -> None:
    objects = (
        ("validatingadmissionpolicies", POLICY),
        ("validatingadmissionpolicybindings", BINDING),
        ("validatingwebhookconfigurations", {"metadata": {"name": "hooks"}, "webhooks": [HOOK]}),
    )
    async with running(tmp_path) as server:
        for plural, obj in objects:
            assert (await server.ask("POST", f"{GROUP}/{plural}", obj)).status == 201
        server.kill()
        await server.start()
        for number in range(2):
            answer = await server.ask("POST", CONFIG_MAPS, config_map(f"small-{number}", a="b"))
            assert answer.status == 201, answer.text
        answer = await server.ask("POST", CONFIG_MAPS, config_map("large", a="0123456789"))
        assert answer.status == 422, answer.text


_WRITERS = 4


@pytest.mark.parametrize("controllers", ["", "*"], ids=["no controllers", "controllers"])
async def test_every_kind_is_first_written_by_several_connections(
    tmp_path: Path, store: tuple[str, ...], controllers: str
) -> None:
    async with running(tmp_path, *store, "--controllers", controllers) as server:
        await connect(server)
        for group, plural in resources():
            assert await create_at_once(server, group, plural) == [201] * _WRITERS, (group, plural)
        assert await served(server) == set(resources())
        await create_first_objects_of_new_kinds(server)
        assert server.process is not None
        assert server.process.poll() is None


async def connect(server: Server) -> None:
    """Open the connections, so that later requests meet in the server."""
    await asyncio.gather(*(server.ask("GET", "/version") for _ in range(_WRITERS)))


async def create_at_once(server: Server, group: str, plural: str) -> list[int]:
    """The status codes of several creates that are sent together."""
    resource = (await resources_of(server, group))[plural]
    root = root_of(group)
    path = f"{root}/namespaces/default/{plural}" if resource["namespaced"] else f"{root}/{plural}"
    bodies = [valid_object(group, plural, resource["kind"], number) for number in range(_WRITERS)]
    answers = await asyncio.gather(*(server.ask("POST", path, body) for body in bodies))
    assert {answer.status for answer in answers} == {201}, answers[0].text
    return [answer.status for answer in answers]


async def create_first_objects_of_new_kinds(server: Server) -> None:
    """The types of a new kind are built when its CustomResourceDefinition is stored."""
    for number in range(_WRITERS):
        path = f"/apis/test.dev/v1/namespaces/default/things{number}"
        body = {"apiVersion": "test.dev/v1", "kind": f"Thing{number}", "metadata": {"generateName": "x-"}}
        sent = (server.ask("POST", path, body | {"spec": {"a": ["x"]}}) for _ in range(_WRITERS))
        assert {answer.status for answer in await asyncio.gather(*sent)} == {201}


async def resources_of(server: Server, group: str) -> dict[str, dict[str, Any]]:
    """The resources of a group that can be created, by plural."""
    document = (await server.ask("GET", root_of(group))).json
    creatable = [
        resource
        for resource in document["resources"]
        if "create" in resource["verbs"] and "/" not in resource["name"]
    ]
    return {resource["name"]: resource for resource in creatable}


async def served(server: Server) -> set[tuple[str, str]]:
    """Everything that the server lets clients create."""
    groups = [group["name"] for group in (await server.ask("GET", "/apis")).json["groups"]]
    known = [group for group in ("", *groups) if group != "test.dev"]
    return {(group, plural) for group in known for plural in await resources_of(server, group)}
