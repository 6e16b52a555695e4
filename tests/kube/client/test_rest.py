from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta

import msgspec
import pytest

from certwright.kube.api import errors
from certwright.kube.api.core import CONFIG_MAPS, NAMESPACES, ConfigMap, Namespace
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.client.rest import JSON_PATCH, Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.clock import TestClock
from certwright.kube.util.http_messages import Request, Response
from kube.client.peers import ALICE, Peer
from support.waiting import turns

DICTS: Kind[dict[str, object]] = Kind("", "v1", "ConfigMap", "configmaps", "configmap", True, dict)
A = {"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n", "resourceVersion": "7"}}


def a(**data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name="a", namespace="n", resource_version="7"), data=data)


@pytest.fixture
def peer() -> Peer:
    """A server that is a list of answers."""
    return Peer()


async def test_get_asks_as_the_user_and_decodes(peer: Peer) -> None:
    peer.answer(200, A | {"data": {"k": "v"}})
    got = await peer.client().get(CONFIG_MAPS, "a", "n")
    assert got == a(k="v")
    assert peer.targets == ["GET /api/v1/namespaces/n/configmaps/a"]
    assert peer.requests[0].user == ALICE
    assert peer.requests[0].headers["user-agent"] == "test"


async def test_a_name_cannot_break_out_of_its_place_in_the_path(peer: Peer) -> None:
    peer.answer(200, A)
    await peer.client().get(CONFIG_MAPS, "../x?y#z", "n")
    assert peer.targets == ["GET /api/v1/namespaces/n/configmaps/..%2Fx%3Fy%23z"]


@pytest.mark.parametrize(("namespace", "name"), [("n", ""), ("n", "."), ("n", ".."), ("..", "a")])
async def test_a_name_that_no_object_can_have_is_not_sent(peer: Peer, namespace: str, name: str) -> None:
    """Empty, it would be a request for all objects; proxies remove dot segments of a path."""
    client = peer.client()
    with pytest.raises(errors.NotFound):
        await client.get(CONFIG_MAPS, name, namespace)
    with pytest.raises(errors.NotFound):
        await client.delete(CONFIG_MAPS, name, namespace)
    with pytest.raises(errors.NotFound):
        await client.patch(CONFIG_MAPS, name, namespace, {})
    assert peer.targets == []


async def test_a_list_follows_its_pages(peer: Peer) -> None:
    peer.answer(200, {"metadata": {"resourceVersion": "9", "continue": "t+1"}, "items": [A]})
    peer.answer(200, {"metadata": {"resourceVersion": "9"}, "items": [A]})
    listing = await peer.client().list(CONFIG_MAPS, labels="app in (x, y)", limit=1)
    assert [c.metadata.name for c in listing.items] == ["a", "a"]
    assert listing.resource_version == "9"
    assert peer.targets == [
        "GET /api/v1/configmaps?labelSelector=app+in+%28x%2C+y%29&limit=1",
        "GET /api/v1/configmaps?labelSelector=app+in+%28x%2C+y%29&limit=1&continue=t%2B1",
    ]


async def test_items_of_a_list_of_dicts_say_what_they_are(peer: Peer) -> None:
    peer.answer(200, {"metadata": {}, "items": [{"metadata": {"name": "a"}}]})
    (item,) = (await peer.client().list(DICTS)).items
    assert (item["apiVersion"], item["kind"]) == ("v1", "ConfigMap")


async def test_create_goes_to_the_collection_of_the_namespace(peer: Peer) -> None:
    peer.answer(201, A)
    await peer.client().create(CONFIG_MAPS, a(k="v"), dry_run=True, strict=True)
    assert peer.targets == ["POST /api/v1/namespaces/n/configmaps?dryRun=All&fieldValidation=Strict"]
    body = msgspec.json.decode(peer.requests[0].body)
    assert (body["apiVersion"], body["kind"], body["data"]) == ("v1", "ConfigMap", {"k": "v"})


async def test_update_puts_the_object(peer: Peer) -> None:
    peer.answer(200, {"metadata": {"name": "x"}})
    await peer.client().update(NAMESPACES, Namespace(metadata=ObjectMeta(name="x")))
    assert peer.targets == ["PUT /api/v1/namespaces/x"]


async def test_patch_says_of_which_kind_it_is(peer: Peer) -> None:
    peer.answer(200, A)
    peer.answer(200, A)
    client = peer.client()
    await client.patch(CONFIG_MAPS, "a", "n", {"data": None})
    await client.patch(CONFIG_MAPS, "a", "n", [{"op": "remove", "path": "/data"}], content_type=JSON_PATCH)
    assert [r.headers["content-type"] for r in peer.requests] == [
        "application/merge-patch+json",
        "application/json-patch+json",
    ]
    assert peer.requests[0].body == b'{"data":null}'


async def test_delete_carries_its_preconditions(peer: Peer) -> None:
    peer.answer(200, {})
    await peer.client().delete(CONFIG_MAPS, "a", "n", uid="u", propagation="Foreground")
    assert msgspec.json.decode(peer.requests[0].body) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u"},
        "propagationPolicy": "Foreground",
    }


NOT_UNDERSTOOD = errors.NoApi, "configmaps: the answer is not understood"
TAKEN = {"reason": "AlreadyExists", "message": 'configmaps "a" already exists'}


@pytest.mark.parametrize(
    ("kind", "response", "error", "words"),
    [
        (CONFIG_MAPS, Response(409, {}, msgspec.json.encode(TAKEN)), errors.AlreadyExists, "already exists"),
        *((CONFIG_MAPS, Response(200, {}, body), *NOT_UNDERSTOOD) for body in (b"<html>", b"", b"null")),
        (CONFIG_MAPS, Response(200, {}, b"[1]"), *NOT_UNDERSTOOD),
        (CONFIG_MAPS, Response(200, {}, b'{"metadata": {"name": 5}}'), *NOT_UNDERSTOOD),
        (DICTS, Response(200, {}, b'{"hello": 1}'), errors.NoApi, "has no metadata"),
        (DICTS, Response(200, {}, b'{"metadata": "x"}'), errors.NoApi, "has no metadata"),
        (
            CONFIG_MAPS,
            Response(502, {}, b"<html>\r\nBad Gateway"),
            errors.ApiError,
            "HTTP status 502: <html> Bad Gateway",
        ),
    ],
)
async def test_an_answer_that_is_no_object_is_an_error(
    peer: Peer, kind: Kind[object], response: Response, error: type[Exception], words: str
) -> None:
    peer.answers.append(response)
    with pytest.raises(error, match=words):
        await peer.client().get(kind, "a", "n")


async def test_an_answer_that_is_no_list_is_no_answer(peer: Peer) -> None:
    peer.answers.append(Response(200, {}, b"<html>"))
    with pytest.raises(errors.NoApi, match="not a list"):
        await peer.client().list(CONFIG_MAPS)


async def test_retry_after_is_waited_for(peer: Peer) -> None:
    clock = TestClock()
    peer.answer(429, {}, retry_after="3")
    peer.answer(200, A)
    task = asyncio.ensure_future(peer.client(clock=clock).get(CONFIG_MAPS, "a", "n"))
    await turns()
    assert len(peer.requests) == 1
    clock.advance(timedelta(seconds=3))
    assert (await task).metadata.name == "a"


async def test_a_create_that_was_not_served_is_not_made_twice_but_one_turned_away_is(peer: Peer) -> None:
    clock = TestClock()
    peer.answer(503, {"message": "starting"}, retry_after="0")
    with pytest.raises(errors.Unavailable):
        await peer.client(clock=clock).create(CONFIG_MAPS, a())
    peer.answer(429, {}, retry_after="0")
    peer.answer(201, A)
    assert await peer.client(clock=clock).create(CONFIG_MAPS, a()) == a()


@pytest.mark.parametrize("status", [500, 502, 504])
async def test_what_may_be_done_twice_is_tried_again_when_a_server_that_failed_asks_for_it(
    peer: Peer,
    status: int,
) -> None:
    clock = TestClock()
    peer.answer(status, {}, retry_after="0")
    peer.answer(200, A)
    await peer.client(clock=clock).update(CONFIG_MAPS, a())
    peer.answer(status, {})
    with pytest.raises(errors.ApiError):
        await peer.client(clock=clock).update(CONFIG_MAPS, a())
    assert len(peer.requests) == 3


async def test_retry_after_may_be_a_date_by_the_clock_of_the_server(peer: Peer) -> None:
    clock = TestClock()
    date, later = "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:07 GMT"
    peer.answer(429, {}, retry_after=later, date=date)
    peer.answer(200, A)
    task = asyncio.ensure_future(peer.client(clock=clock).get(CONFIG_MAPS, "a", "n"))
    await turns()
    clock.advance(timedelta(seconds=6))
    await turns()
    assert len(peer.requests) == 1
    clock.advance(timedelta(seconds=1))
    await task


async def test_patience_ends_after_a_minute_and_after_five_tries(peer: Peer) -> None:
    clock = TestClock()
    peer.answer(429, {}, retry_after="61")
    with pytest.raises(errors.TooManyRequests) as caught:
        await peer.client(clock=clock).get(CONFIG_MAPS, "a", "n")
    assert caught.value.retry_after_s == 61
    for _ in range(5):
        peer.answer(429, {}, retry_after="0")
    with pytest.raises(errors.TooManyRequests):
        await peer.client(clock=clock).get(CONFIG_MAPS, "a", "n")
    assert len(peer.requests) == 6


async def test_warnings_are_passed_on(peer: Peer) -> None:
    texts = "one", 'say "two"', "a\\b, 299 - c", "ехample.com"
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    header = ", ".join(f'299 - "{text}"' for text in quoted).encode().decode("latin-1")
    peer.answers.append(Response(200, {"warning": header}, b"{}"))
    heard: list[str] = []
    await peer.client(on_warning=heard.append).get(CONFIG_MAPS, "a", "n")
    assert heard == list(texts)


async def test_a_watch_yields_batches_and_ends_with_its_stream(peer: Peer) -> None:
    stream = peer.answer_stream()
    stream.send({"type": "ADDED", "object": A}, {"type": "BOOKMARK", "object": {"metadata": {}}})
    stream.send({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}})
    stream.send({"type": "DELETED", "object": A})
    stream.end()
    watch = peer.client().watch(CONFIG_MAPS, "n", resource_version="5", timeout_s=60)
    batches = [[(e.type, e.object.metadata.name, e.resource_version) for e in batch] async for batch in watch]
    assert batches == [[("ADDED", "a", "7")], [("DELETED", "a", "7")]]
    assert stream.closed
    assert peer.targets == [
        "GET /api/v1/namespaces/n/configmaps"
        "?watch=true&resourceVersion=5&allowWatchBookmarks=true&timeoutSeconds=60"
    ]


async def test_a_watch_raises_the_error_that_the_server_sends(peer: Peer) -> None:
    stream = peer.answer_stream()
    stream.send({"type": "ADDED", "object": A}, {"type": "ERROR", "object": {"code": 410, "message": "old"}})
    watch = peer.client().watch(CONFIG_MAPS, resource_version="5")
    assert len(await anext(watch)) == 1
    with pytest.raises(errors.Expired, match="old"):
        await anext(watch)
    assert stream.closed


async def test_a_watch_left_early_lets_go_of_its_stream(peer: Peer) -> None:
    stream = peer.answer_stream()
    stream.send({"type": "ADDED", "object": A})
    async with aclosing(peer.client().watch(CONFIG_MAPS, resource_version="5")) as watch:
        async for _ in watch:
            break
    assert stream.closed


async def test_nothing_goes_through_a_closed_transport() -> None:
    client = Peer().client()
    await client.close()
    with pytest.raises(errors.Unreachable):
        await client.get(CONFIG_MAPS, "a", "n")


async def test_an_answer_in_chunks_is_read_whole() -> None:
    async def handle(request: Request) -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            yield b'{"metadata":'
            yield b'{"name":"a"}}'

        return Response(200, {}, stream=chunks())

    client = Client(LocalTransport(handle, ALICE), user_agent="test")
    assert (await client.get(CONFIG_MAPS, "a", "n")).metadata.name == "a"
