"""Streams of events."""

from __future__ import annotations

import asyncio

import pytest

from certwright.kube.apiserver.model.backend import CHUNK
from certwright.kube.util.http_messages import PushStream, Response, close_stream
from kube.apiserver.callers import (
    CERTIFICATES,
    CONFIG_MAPS,
    PARTIAL,
    SECRETS,
    TABLE,
    Api,
    StartApi,
)

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"
PARTIAL_PROTOBUF = f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
INITIAL = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


@pytest.mark.every_store
async def test_a_watch_tells_what_happens_after_its_revision(api: Api) -> None:
    await api.secret("old")
    watch = await api.watch(f"{SECRETS}?resourceVersion={api.store.revision}")
    made = await api.secret("a")
    patched = await api.merge(f"{SECRETS}/a", {"metadata": {"labels": {"x": "y"}}})
    await api.ok("DELETE", f"{SECRETS}/a")
    await api.secret("elsewhere", namespace="kube-system")
    await api.secret("b")
    assert await watch.next() == {"type": "ADDED", "object": made}
    assert await watch.next() == {"type": "MODIFIED", "object": patched}
    gone = await watch.next()
    assert gone["type"] == "DELETED"
    assert gone["object"]["data"] == made["data"]
    before = int(patched["metadata"]["resourceVersion"])
    assert gone["object"]["metadata"]["resourceVersion"] == str(before + 1)
    assert await watch.names(1) == [("ADDED", "b")]


async def test_initial_events_of_many_objects(api: Api) -> None:
    for number in range(CHUNK + 5):
        await api.config_map(f"c{number:04}")
    watch = await api.watch(f"{CONFIG_MAPS}?{INITIAL}")
    await api.config_map("later")
    seen = [name for _, name in await watch.names(CHUNK + 7)]
    assert seen == [*(f"c{number:04}" for number in range(CHUNK + 5)), "", "later"]


async def test_one_object_is_watched_by_name(api: Api) -> None:
    revision = api.store.revision
    by_field = await api.watch(f"{SECRETS}?fieldSelector=metadata.name%3Db&resourceVersion={revision}")
    by_path = await api.watch(f"/api/v1/watch/namespaces/default/secrets/b?resourceVersion={revision}")
    for name in "abc":
        await api.secret(name)
    await api.ok("DELETE", f"{SECRETS}/b")
    for watch in (by_field, by_path):
        assert await watch.names(2) == [("ADDED", "b"), ("DELETED", "b")]


async def test_a_revision_that_lies_ahead_is_waited_for(start_api: StartApi) -> None:
    api = await start_api(bookmark_every_s=0.01)
    ahead = api.store.revision + 2
    watch = await api.watch(f"{SECRETS}?resourceVersion={ahead}&allowWatchBookmarks=true")
    for name in "abc":
        await api.secret(name)
    while (event := await watch.next())["type"] == "BOOKMARK":
        assert int(event["object"]["metadata"]["resourceVersion"]) >= ahead
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "c")


async def test_initial_events_of_a_revision_that_lies_ahead(api: Api) -> None:
    watch = await api.watch(f"{SECRETS}?{INITIAL}&resourceVersion=9999")
    (event,) = await watch.rest()
    assert (event["type"], event["object"]["reason"], event["object"]["code"]) == ("ERROR", "Timeout", 504)
    assert event["object"]["details"] == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }


async def test_the_parameter_on_one_object_means_nothing(api: Api) -> None:
    await api.secret("a")
    assert (await api.ok("GET", f"{SECRETS}/a?watch=true"))["kind"] == "Secret"


async def test_paths_that_begin_with_watch(api: Api) -> None:
    await api.secret("a")
    await api.secret("a", "kube-system")
    everywhere = await api.watch("/api/v1/watch/secrets?fieldSelector=type%3DOpaque")
    assert await everywhere.names(2) == [("ADDED", "a"), ("ADDED", "a")]
    await api.certificate("web")
    custom = await api.watch(CERTIFICATES.replace("/v1/", "/v1/watch/"))
    assert await custom.names(1) == [("ADDED", "web")]
    path = "/api/v1/watch/namespaces/default/secrets/a"
    refused = await api.call("GET", f"{path}?fieldSelector=metadata.name%3Db")
    assert refused.message == "fieldSelector metadata.name doesn't match requested name"
    assert (await api.call("DELETE", path)).status == 405
    assert (await api.ok("GET", f"{SECRETS}/a"))["metadata"]["name"] == "a"


async def test_every_kind_has_bookmarks_as_tables(api: Api) -> None:
    """A bookmark is an object with nothing in it, which no cell may stumble over."""
    resources = [
        (f"/api/v1/{resource['name']}", resource)
        for resource in (await api.ok("GET", "/api/v1"))["resources"]
    ]
    for group in (await api.ok("GET", "/apis"))["groups"]:
        path = f"/apis/{group['preferredVersion']['groupVersion']}"
        resources += [
            (f"{path}/{resource['name']}", resource) for resource in (await api.ok("GET", path))["resources"]
        ]
    watched = [
        path for path, resource in resources if "watch" in resource["verbs"] and "/" not in resource["name"]
    ]
    assert len(watched) > 10
    for path in watched:
        watch = await api.watch(f"{path}?{INITIAL}", accept=TABLE)
        while (event := await watch.next())["type"] != "BOOKMARK":
            assert event["type"] == "ADDED", path
        await watch.close()


@pytest.mark.every_store
async def test_bookmarks_tell_how_far_the_stream_has_come(start_api: StartApi) -> None:
    api = await start_api(bookmark_every_s=0.01)
    watch = await api.watch(f"{SECRETS}?allowWatchBookmarks=true&resourceVersion={api.store.revision}")
    await api.config_map("other")
    revision = 0
    while revision < api.store.revision:  # the first may come before the watch has heard of it
        mark = await watch.next()
        assert (mark["type"], mark["object"]["metadata"].keys()) == ("BOOKMARK", {"resourceVersion"})
        revision = int(mark["object"]["metadata"]["resourceVersion"])
    assert revision == api.store.revision
    # Also when nothing happens.
    assert [(await watch.next())["type"] for _ in range(3)] == ["BOOKMARK"] * 3


async def test_closing_the_server_ends_its_watches(api: Api) -> None:
    watch = await api.watch(f"{SECRETS}?resourceVersion={api.store.revision}")
    reading = asyncio.create_task(watch.rest())
    await asyncio.sleep(0)
    await api.server.close()
    assert await asyncio.wait_for(reading, 60) == []


async def test_a_closed_watch_lets_go_also_before_it_is_read(api: Api) -> None:
    for read in (False, True):
        watch = await api.watch(SECRETS)
        if read:
            await api.secret("a")
            await watch.next()
        await watch.close()
        await watch.close()
        with pytest.raises(StopAsyncIteration):
            await watch.next()


@pytest.mark.parametrize("accept", ["application/json", "application/vnd.kubernetes.protobuf"])
async def test_watchers_of_one_form_share_the_bytes(api: Api, accept: str) -> None:
    target = f"{SECRETS}?watch=true&resourceVersion={api.store.revision}"
    responses = [await api.raw("GET", target, accept=accept) for _ in range(2)]
    await api.secret("a")
    chunks = [await anext(response.stream) for response in responses if response.stream is not None]
    assert chunks[0] is chunks[1]
    for response in responses:
        await close_stream(response.stream)


async def push(response: Response) -> tuple[list[bytes], asyncio.Future[bytes]]:
    """What the stream of a watch writes from now on, and its reader, which waits for the next chunk."""
    stream, sent = response.stream, list[bytes]()
    assert stream is not None
    assert isinstance(stream, PushStream)

    def write(chunk: bytes) -> bool:
        sent.append(chunk)
        return True

    stream.push_into(write)
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    return sent, reading


@pytest.mark.parametrize("accept", [JSON, PARTIAL, TABLE, PROTOBUF, PARTIAL_PROTOBUF])
@pytest.mark.parametrize("selector", ["", "&labelSelector=a%3Db"])
async def test_watchers_receive_an_event_before_its_writer_is_answered(
    api: Api, accept: str, selector: str
) -> None:
    target = f"{SECRETS}?watch=true&resourceVersion={api.store.revision}{selector}"
    response = await api.raw("GET", target, accept=accept)
    sent, reading = await push(response)
    await api.secret("first", labels={"a": "b"})
    assert len(sent) == 1
    assert b"first" in sent[0]
    reading.cancel()
    await asyncio.wait([reading])
    await close_stream(response.stream)


async def test_a_protobuf_watch_has_the_same_frames_whether_they_are_written_or_read(api: Api) -> None:
    target = f"{SECRETS}?watch=true&resourceVersion={api.store.revision}"
    pushed, read = [await api.raw("GET", target, accept=PROTOBUF) for _ in range(2)]
    assert read.stream is not None
    sent, reading = await push(pushed)
    await asyncio.gather(api.secret("a"), api.secret("b"))
    received = b""
    while len(received) < sum(map(len, sent)):
        received += await anext(read.stream)
    assert received == b"".join(sent)
    reading.cancel()
    await asyncio.wait([reading])
    for response in (pushed, read):
        await close_stream(response.stream)
