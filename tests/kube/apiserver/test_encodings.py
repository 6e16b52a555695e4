"""Protobuf and YAML through the server: bodies, answers, lists, watches."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from certwright.kube.apiserver.protobuf import codec
from certwright.kube.apiserver.protobuf.wire import Reading
from certwright.kube.util.http_messages import Identity, Response, close_stream
from kube.apiserver.callers import CERTIFICATES, CONFIG_MAPS, SECRETS, Api, StartApi

PROTOBUF = "application/vnd.kubernetes.protobuf"
TYPED = f"{PROTOBUF},application/json"
METADATA = (
    f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def read(response: Response) -> Any:
    """The object of a protobuf answer."""
    assert response.headers["content-type"] == PROTOBUF, response.body
    return codec.decode(response.body)


def config_map(name: str, **data: str) -> Any:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def send(api: Api, method: str, path: str, obj: Any) -> Response:
    return await api.raw(method, path, codec.encode(obj), content_type=PROTOBUF, accept=TYPED)


async def test_a_typed_client_creates_updates_and_deletes(api: Api) -> None:
    created = await send(api, "POST", CONFIG_MAPS, config_map("a", key="old"))
    assert created.status == 201
    obj = read(created)
    assert obj["data"] == {"key": "old"}
    obj["data"] = {"key": "new"}
    updated = await send(api, "PUT", f"{CONFIG_MAPS}/a", obj)
    assert (updated.status, read(updated)["data"]) == (200, {"key": "new"})
    stale = await send(api, "PUT", f"{CONFIG_MAPS}/a", obj)
    assert (stale.status, read(stale)["reason"]) == (409, "Conflict")
    stored = await api.ok("GET", f"{CONFIG_MAPS}/a")
    options: Any = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "another"}}
    assert (await send(api, "DELETE", f"{CONFIG_MAPS}/a", options)).status == 409
    options["preconditions"]["uid"] = stored["metadata"]["uid"]
    deleted = await send(api, "DELETE", f"{CONFIG_MAPS}/a", options)
    assert (deleted.status, read(deleted)["status"]) == (200, "Success")
    gone = await api.raw("GET", f"{CONFIG_MAPS}/a", accept=TYPED)
    assert (gone.status, read(gone)["reason"], read(gone)["code"]) == (404, "NotFound", 404)


async def test_a_lease_keeps_its_microseconds(api: Api) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "leader"},
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-01-02T03:04:05.000678Z",
        },
    }
    assert read(await send(api, "POST", LEASES, lease))["spec"] == lease["spec"]
    assert (await api.ok("GET", f"{LEASES}/leader"))["spec"] == lease["spec"]


async def test_a_malformed_body_is_a_bad_request_that_names_the_field(api: Api) -> None:
    body = codec.encode(config_map("abc")).replace(b"\x03abc", b"\x7fabc")
    response = await api.raw("POST", CONFIG_MAPS, body, content_type=PROTOBUF)
    status = msgspec.json.decode(response.body)
    assert (response.status, status["reason"]) == (400, "BadRequest")
    assert status["message"].startswith('ConfigMap in version "v1" cannot be handled as a ConfigMap: ')
    assert "metadata.name" in status["message"]
    assert "at byte" in status["message"]
    nothing = await api.raw("POST", CONFIG_MAPS, b"k8s\x00", content_type=PROTOBUF)
    assert msgspec.json.decode(nothing.body)["message"] == (
        "the object provided is unrecognized (must be of type ConfigMap): empty body (6b387300)"
    )


async def test_an_object_of_another_kind_is_refused(api: Api) -> None:
    response = await send(api, "POST", SECRETS, config_map("a"))
    assert response.status == 400


@pytest.mark.parametrize("options", ["limit=2", "", "limit=500"])
async def test_lists_are_lists_in_protobuf_too(api: Api, options: str) -> None:
    for number in range(5):
        await api.ok("POST", CONFIG_MAPS, config_map(f"a{number}", key="x"))
    path = f"{CONFIG_MAPS}?{options}"
    response = await api.raw("GET", path, accept=TYPED)
    as_json = await api.ok("GET", path)
    # In a list of its own kind, protobuf does not say what each item is.
    for item in as_json["items"]:
        del item["apiVersion"], item["kind"]
    listing = read(response)
    for item in (*listing["items"], *as_json["items"]):
        item["metadata"].setdefault("managedFields", None)
    assert listing == as_json


async def test_a_long_list_is_whole(api: Api) -> None:
    for number in range(620):
        await api.ok("POST", CONFIG_MAPS, config_map(f"a{number}"))
    listing = read(await api.raw("GET", CONFIG_MAPS, accept=TYPED))
    assert len({item["metadata"]["name"] for item in listing["items"]}) >= 620


async def test_metadata_of_any_kind_comes_in_protobuf(api: Api) -> None:
    await api.certificate("web")
    obj = read(await api.raw("GET", f"{CERTIFICATES}/web", accept=METADATA))
    assert (obj["kind"], obj["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert obj["metadata"]["name"] == "web"
    plural = METADATA.replace("as=PartialObjectMetadata", "as=PartialObjectMetadataList")
    many = read(await api.raw("GET", CERTIFICATES, accept=plural))
    assert many["kind"] == "PartialObjectMetadataList"
    assert [item["metadata"]["name"] for item in many["items"]] == ["web"]


async def test_custom_objects_are_json_or_nothing(api: Api) -> None:
    await api.certificate("web")
    either = await api.raw("GET", f"{CERTIFICATES}/web", accept=TYPED)
    assert (either.status, either.headers["content-type"]) == (200, "application/json")
    missing = await api.raw("GET", f"{CERTIFICATES}/missing", accept=TYPED)
    assert read(missing)["reason"] == "NotFound"
    neither = await api.raw("GET", f"{CERTIFICATES}/web", accept=PROTOBUF)
    assert (neither.status, read(neither)["reason"]) == (406, "NotAcceptable")


@pytest.mark.parametrize("accept", [PROTOBUF + ";as=Table;v=v1;g=meta.k8s.io", "application/yaml"])
async def test_neither_tables_in_protobuf_nor_watches_in_yaml(api: Api, accept: str) -> None:
    assert (await api.raw("GET", f"{CONFIG_MAPS}?watch=true", accept=accept)).status == 406


def frames(chunk: bytes) -> list[tuple[str, Any]]:
    """Type and object of the events in a piece of a watch."""
    events = []
    while chunk:
        size = int.from_bytes(chunk[:4], "big")
        message, chunk = chunk[4 : 4 + size], chunk[4 + size :]
        reading = Reading(message)
        event = reading.small(0, size)
        kind, obj = event[1], event[2]
        assert isinstance(kind, tuple)
        assert isinstance(obj, tuple)
        raw = reading.small(*obj)[1]
        assert isinstance(raw, tuple)
        events.append((message[slice(*kind)].decode(), codec.decode(message[slice(*raw)])))
    return events


async def test_a_watch_is_a_stream_of_frames(api: Api) -> None:
    await api.ok("POST", CONFIG_MAPS, config_map("a", key="x"))
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    response = await api.raw("GET", f"{CONFIG_MAPS}?{query}&fieldSelector=metadata.name=a", accept=TYPED)
    assert response.headers["content-type"] == f"{PROTOBUF};stream=watch"
    assert response.stream is not None
    first = frames(await anext(response.stream))
    assert [(kind, obj["metadata"]["name"]) for kind, obj in first] == [("ADDED", "a")]
    [(kind, mark)] = frames(await anext(response.stream))
    assert kind == "BOOKMARK"
    assert mark["kind"] == "ConfigMap"
    assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    await api.ok("PUT", f"{CONFIG_MAPS}/a", config_map("a", key="y"))
    [(kind, obj)] = frames(await anext(response.stream))
    assert (kind, obj["data"]) == ("MODIFIED", {"key": "y"})
    assert api.server.open_watches == 1
    await close_stream(response.stream)
    assert api.server.open_watches == 0


async def test_a_watch_of_metadata_serves_custom_kinds_too(api: Api) -> None:
    await api.certificate("web")
    response = await api.raw("GET", f"{CERTIFICATES}?watch=true&timeoutSeconds=1", accept=METADATA)
    assert response.stream is not None
    [(kind, obj)] = frames(await anext(response.stream))
    assert (kind, obj["kind"], obj["metadata"]["name"]) == ("ADDED", "PartialObjectMetadata", "web")
    await close_stream(response.stream)


async def test_who_is_refused_is_told_in_protobuf(start_api: StartApi) -> None:
    api = await start_api(user=Identity("nobody"))
    response = await api.raw("GET", CONFIG_MAPS, accept=TYPED)
    status = read(response)
    assert (response.status, status["code"], status["reason"]) == (403, 403, "Forbidden")
    assert status["details"]["kind"] == "configmaps"
    anonymous = await start_api(user=None)
    assert read(await anonymous.raw("GET", CONFIG_MAPS, accept=PROTOBUF))["reason"] == "Unauthorized"


async def test_yaml_is_given_to_who_wants_it(api: Api) -> None:
    await api.ok("POST", CONFIG_MAPS, config_map("a", key="x"))
    response = await api.raw("GET", f"{CONFIG_MAPS}/a", accept="application/yaml")
    assert response.headers["content-type"] == "application/yaml"
    assert yaml.safe_load(response.body)["data"] == {"key": "x"}
    assert b'resourceVersion: "' in response.body
