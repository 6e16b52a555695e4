"""Versions of a custom resource that a webhook converts, asked over real HTTPS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from conformance.kinds import INTEGER, STRING, an_object, crd
from kube.apiserver.callers import CRDS, MERGE, PARTIAL, TABLE, Api, Json
from kube.apiserver.webhook_server import WebhookServer, patch, register, running

APPLY = "application/apply-patch+yaml"
V1 = "/apis/example.com/v1/namespaces/default/hosts"
V2 = "/apis/example.com/v2/namespaces/default/hosts"


def convert(request: Json) -> Json:
    """v1 has `host: name:port`, v2 has `name` and `port`."""
    version, converted = request["desiredAPIVersion"], []
    for obj in request["objects"]:
        spec = obj.get("spec", {})
        if version.endswith("/v2"):
            name, _, port = spec["host"].partition(":")
            spec = {"name": name, "port": int(port)}
        else:
            spec = {"host": f"{spec['name']}:{spec['port']}"}
        converted.append({**obj, "apiVersion": version, "spec": spec})
    return {"result": {"status": "Success"}, "convertedObjects": converted}


def host(version: str, called: str, /, **spec: Any) -> Json:
    """An object in one version."""
    return {
        "apiVersion": f"example.com/{version}",
        "kind": "Host",
        "metadata": {"name": called},
        "spec": spec,
    }


def host_crd(client: Json) -> Json:
    made = crd("hosts", {}, kind="Host", group="example.com")
    [first] = made["spec"]["versions"]
    versions = made["spec"]["versions"] = []
    for name, properties in (("v1", {"host": STRING}), ("v2", {"name": STRING, "port": INTEGER})):
        spec = {**an_object(**properties), "required": sorted(properties)}
        columns = [
            {"name": key.capitalize(), "type": "string", "jsonPath": f".spec.{key}"} for key in properties
        ]
        schema = {"openAPIV3Schema": an_object(spec=spec)}
        more = {"schema": schema, "additionalPrinterColumns": columns, "storage": name == "v1"}
        versions.append({**first, "name": name, **more})
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    made["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return made


@pytest.fixture
async def webhook() -> AsyncIterator[WebhookServer]:
    async with running() as server:
        server.answers["/convert"] = convert
        yield server


@pytest.fixture
async def hosts(api: Api, webhook: WebhookServer) -> Api:
    await api.ok("POST", CRDS, host_crd(webhook.client_config("/convert")))
    await api.ok("POST", V1, host("v1", "a", host="x:1"))
    return api


async def test_the_kept_version_needs_no_webhook(hosts: Api, webhook: WebhookServer) -> None:
    await hosts.ok("GET", V1)
    assert webhook.reviews == []


def _owned(obj: Json) -> dict[str, Any]:
    """What each manager owns of `spec`."""
    entries = obj["metadata"]["managedFields"]
    return {f"{entry['manager']} {entry['apiVersion']}": entry["fieldsV1"]["f:spec"] for entry in entries}


async def test_a_change_takes_fields_from_their_owners_in_other_versions(
    hosts: Api, webhook: WebhookServer
) -> None:
    await hosts.ok("POST", f"{V1}?fieldManager=ann", host("v1", "b", host="y:2"))
    updated = await hosts.ok("PATCH", f"{V2}/b?fieldManager=bob", {"spec": {"port": 3}}, content_type=MERGE)
    assert _owned(updated) == {"ann example.com/v1": {}, "bob example.com/v2": {"f:port": {}}}
    # What is stored, before and after in the version of the other owner, what is written, and the answer.
    assert len(webhook.reviews) == 5


async def test_a_webhook_that_cannot_be_asked_leaves_nobody_an_owner(
    hosts: Api, webhook: WebhookServer
) -> None:
    await hosts.ok("PATCH", f"{V2}/a?fieldManager=bob", {"spec": {"port": 2}}, content_type=MERGE)
    webhook.answers["/convert"] = lambda _: {"result": {"status": "Failed", "message": "no"}}
    updated = await hosts.ok("PATCH", f"{V1}/a", {"spec": {"host": "z:1"}}, content_type=MERGE)
    assert "managedFields" not in updated["metadata"]


async def test_a_list_is_converted_in_one_request(hosts: Api, webhook: WebhookServer) -> None:
    await hosts.ok("POST", V1, host("v1", "b", host="y:2"))
    listing = await hosts.ok("GET", V2)
    assert (listing["apiVersion"], listing["kind"]) == ("example.com/v2", "HostList")
    assert [item["spec"]["port"] for item in listing["items"]] == [1, 2]
    assert len(webhook.reviews) == 1


async def test_tables_and_metadata_of_a_converted_version(hosts: Api) -> None:
    table = await hosts.ok("GET", V2, accept=TABLE)
    assert [row["cells"] for row in table["rows"]] == [["a", "x", "1"]]
    assert (await hosts.ok("GET", f"{V2}/a", accept=TABLE))["rows"][0]["cells"] == ["a", "x", "1"]
    assert (await hosts.ok("GET", f"{V2}/a", accept=PARTIAL))["kind"] == "PartialObjectMetadata"


async def test_events_are_converted(hosts: Api) -> None:
    stream = await hosts.watch(V2)
    event = await stream.next()
    assert (event["type"], event["object"]["spec"]) == ("ADDED", {"name": "x", "port": 1})
    await hosts.ok("PATCH", f"{V1}/a", {"spec": {"host": "z:5"}}, content_type=MERGE)
    event = await stream.next()
    assert (event["type"], event["object"]["spec"]) == ("MODIFIED", {"name": "z", "port": 5})
    await stream.close()


async def test_each_version_is_checked_by_its_own_schema(hosts: Api) -> None:
    answer = await hosts.call("POST", V2, host("v2", "b", name="y"))
    assert answer.status == 422
    assert answer.message == 'Host.example.com "b" is invalid: spec.port: Required value'


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"result": {"status": "Failed", "message": "no way"}}, "failed: no way"),
        ({"result": {"status": "Success"}}, "returned 0 objects, expected 1"),
        (
            {"result": {"status": "Success"}, "convertedObjects": [{"metadata": {}}]},
            "returned invalid object: invalid groupVersion (expected example.com/v2, received None)",
        ),
    ],
)
async def test_a_webhook_that_fails_is_named(
    hosts: Api, webhook: WebhookServer, answer: Json, text: str
) -> None:
    webhook.answers["/convert"] = lambda _: answer
    response = await hosts.call("GET", f"{V2}/a")
    assert response.status == 500
    assert response.message == f"conversion webhook for example.com/v1, Kind=Host {text}"


async def test_an_admission_webhook_sees_the_version_that_it_asks_for(
    hosts: Api, webhook: WebhookServer
) -> None:
    rule = {"apiGroups": ["example.com"], "apiVersions": ["v2"], "resources": ["hosts"], "operations": ["*"]}
    webhook.answers["/change"] = lambda _: patch({"op": "replace", "path": "/spec/port", "value": 9})
    await register(hosts, "Mutating", webhook.hook(path="/change", rules=[rule]))
    made = await hosts.ok("POST", V1, host("v1", "b", host="y:1"))
    assert made["spec"] == {"host": "y:9"}
    asked = next(request for request in webhook.requests if "operation" in request)
    assert (asked["object"]["apiVersion"], asked["object"]["spec"]) == (
        "example.com/v2",
        {"name": "y", "port": 1},
    )
    assert (asked["kind"]["version"], asked["requestKind"]["version"]) == ("v2", "v1")


async def test_objects_are_read_after_another_version_is_stored(hosts: Api, webhook: WebhookServer) -> None:
    crd = await hosts.ok("GET", f"{CRDS}/hosts.example.com")
    first, second = crd["spec"]["versions"]
    moved = {"spec": {"versions": [{**first, "storage": False}, {**second, "storage": True}]}}
    changed = await hosts.ok("PATCH", f"{CRDS}/hosts.example.com", moved, content_type=MERGE)
    assert changed["status"]["storedVersions"] == ["v1", "v2"]
    await hosts.ok("POST", V1, host("v1", "b", host="y:2"))
    webhook.reviews.clear()
    assert [item["spec"] for item in (await hosts.ok("GET", V1))["items"]] == [
        {"host": "x:1"},
        {"host": "y:2"},
    ]
    assert len(webhook.reviews) == 1
    ports = [item["spec"]["port"] for item in (await hosts.ok("GET", V2))["items"]]
    assert ports == [1, 2]


async def test_a_version_may_go_once_nothing_is_stored_in_it(hosts: Api) -> None:
    crd = await hosts.ok("GET", f"{CRDS}/hosts.example.com")
    first, second = crd["spec"]["versions"]
    target = f"{CRDS}/hosts.example.com"
    moved = {"spec": {"versions": [{**first, "storage": False}, {**second, "storage": True}]}}
    await hosts.ok("PATCH", target, moved, content_type=MERGE)
    await hosts.ok("PUT", f"{V2}/a", await hosts.ok("GET", f"{V2}/a"))
    await hosts.ok("PATCH", f"{V2}/a", {"metadata": {"labels": {"moved": "yes"}}}, content_type=MERGE)
    await hosts.ok("PATCH", f"{target}/status", {"status": {"storedVersions": ["v2"]}}, content_type=MERGE)
    only = {"spec": {"versions": [{**second, "storage": True}]}}
    await hosts.ok("PATCH", target, only, content_type=MERGE)
    assert (await hosts.ok("GET", f"{V2}/a"))["spec"] == {"name": "x", "port": 1}


async def test_a_deletion_ends_with_what_was_there(hosts: Api) -> None:
    stream = await hosts.watch(V2)
    await stream.next()
    await hosts.ok("PATCH", f"{V1}/a", {"metadata": {"finalizers": ["x.dev/y"]}}, content_type=MERGE)
    await stream.next()
    await hosts.ok("DELETE", f"{V2}/a")
    await stream.next()
    await hosts.ok("PATCH", f"{V1}/a", {"metadata": {"finalizers": None}}, content_type=MERGE)
    event = await stream.next()
    assert (event["type"], event["object"]["spec"]) == ("DELETED", {"name": "x", "port": 1})
    await stream.close()


@pytest.mark.parametrize("accept", ["application/json", TABLE])
@pytest.mark.parametrize("target", [V2, f"{V2}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan"])
async def test_a_watch_whose_conversion_fails_ends_with_an_error(
    hosts: Api, webhook: WebhookServer, caplog: pytest.LogCaptureFixture, accept: str, target: str
) -> None:
    stream = await hosts.watch(target, accept=accept)
    assert (await stream.next())["type"] == "ADDED"
    webhook.answers["/convert"] = lambda _: {"result": {"status": "Failure", "message": "no luck"}}
    await hosts.ok("POST", V1, host("v1", "b", host="y:2"))
    (error,) = await stream.rest()
    assert (error["type"], error["object"]["kind"], error["object"]["code"]) == ("ERROR", "Status", 500)
    assert "no luck" in error["object"]["message"]
    later = await (await hosts.watch(target, accept=accept)).rest()
    assert [event["type"] for event in later] == ["ERROR"]
    assert [record for record in caplog.records if record.exc_info] == []
