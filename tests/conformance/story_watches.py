"""Stories about watching."""

from __future__ import annotations

import base64
import json
from contextlib import AsyncExitStack

from conformance.compare import story
from conformance.kinds import GAUGES_PATH, gauge, in_namespace, twin, widget
from conformance.peers import Ask, Caller, Events
from conformance.story_reads import PARTIAL, TABLE

_INITIAL = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"


async def _changes(c: Caller, path: str) -> None:
    """Everything that can happen to objects."""
    await c.post(path, widget("a", meta={"labels": {"x": "1"}}, owner="me"))
    await c.post(path, widget("b"))
    await c.patch(f"{path}/a", {"spec": {"size": 2}})
    await c.patch(f"{path}/a", {"spec": {"size": 2}})
    await c.patch(f"{path}/a/status", {"status": {"phase": "x"}})
    await c.patch(f"{path}/a", {"metadata": {"labels": {"x": "2"}}})
    await c.patch(f"{path}/b", {"metadata": {"labels": {"x": "1"}}})
    await c.patch(f"{path}/a", {"metadata": {"labels": {"x": "1"}}, "spec": {"owner": "you"}})
    await c.delete(f"{path}/b")
    await c.patch(f"{path}/a", {"metadata": {"finalizers": ["x.y/z"]}})
    await c.delete(f"{path}/a")
    await c.patch(f"{path}/a", {"metadata": {"finalizers": []}})
    await c.post(path, widget("end", meta={"labels": {"x": "1"}}, owner="me"))


async def _watch_all(c: Caller, query: str = "", **named: str) -> None:
    path = in_namespace(c.namespace)
    async with c.watch(f"{path}?{query}", **named) as events:
        await events.opened()
        await _changes(c, path)
        await events.until("end")


@story
async def every_change_is_an_event(c: Caller) -> None:
    await _watch_all(c)


@story
async def a_label_selector_makes_events_of_its_own(c: Caller) -> None:
    await _watch_all(c, "labelSelector=x=1")


@story
async def a_field_selector_makes_events_of_its_own(c: Caller) -> None:
    await _watch_all(c, "fieldSelector=spec.owner=me")


@story
async def events_carry_metadata_only(c: Caller) -> None:
    await _watch_all(c, "labelSelector=x", accept=PARTIAL)


@story
async def events_carry_tables(c: Caller) -> None:
    path = in_namespace(c.namespace)
    async with c.watch(path, accept=TABLE) as events:
        await events.opened()
        await c.post(path, widget("a"))
        await c.patch(f"{path}/a", {"spec": {"size": 2}})
        await c.delete(f"{path}/a")
        await events.take(3)


@story
async def a_watch_begins_with_what_is_there(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("b"))
    await c.post(path, widget("a"))
    for query in ("", "?resourceVersion=0", "?resourceVersion="):
        async with c.watch(path + query) as events:
            await events.opened()
            received = await events.take(2)
            assert len(received) == 2
    async with c.watch(f"{path}?{_INITIAL}&allowWatchBookmarks=true") as events:
        await events.opened()
        await events.take(3)
        await c.post(path, widget("c"))
        await events.take(1)
        await c.delete(f"{path}/c")
        await events.take(1)
    async with c.watch(
        f"{path}?{_INITIAL}&allowWatchBookmarks=true&labelSelector=nobody", accept=PARTIAL
    ) as events:
        await events.opened()
        await events.take(1)
    async with c.watch(f"{path}?{_INITIAL}&allowWatchBookmarks=true", accept=TABLE) as events:
        await events.opened()
        await events.take(3)
    async with c.watch(
        f"{path}?{_INITIAL}&resourceVersion=0&allowWatchBookmarks=true&fieldSelector=metadata.name=a"
    ) as events:
        await events.opened()
        await events.take(2)


@story
async def a_watch_goes_on_from_a_revision(c: Caller) -> None:
    path = in_namespace(c.namespace)
    first = (await c.post(path, widget("a"))).json["metadata"]["resourceVersion"]
    second = (await c.patch(f"{path}/a", {"spec": {"size": 2}})).json["metadata"]["resourceVersion"]
    await c.delete(f"{path}/a")
    await c.post(path, widget("b"))
    async with c.watch(f"{path}?resourceVersion={first}") as events:
        await events.opened()
        await events.take(3)
    async with c.watch(f"{path}?resourceVersion={second}") as events:
        await events.opened()
        await events.take(2)
    async with c.watch(
        f"{path}?resourceVersion={second}&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
    ) as events:
        await events.opened()
        await events.take(2)
    listed = (await c.get(path)).json["metadata"]["resourceVersion"]
    # Before, not meanwhile: nobody knows how long a write takes.
    await c.post(path, widget("c"))
    async with c.watch(f"{path}?resourceVersion={listed}&timeoutSeconds=3") as events:
        await events.opened()
        await events.rest()


@story
async def watches_that_cannot_begin(c: Caller) -> None:
    path = in_namespace(c.namespace)
    queries = (
        "resourceVersion=abc",
        "resourceVersion=-1",
        "sendInitialEvents=true",
        "sendInitialEvents=true&resourceVersionMatch=Exact",
        "sendInitialEvents=true&resourceVersionMatch=Other",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=Exact&resourceVersion=1",
        "sendInitialEvents=x&resourceVersionMatch=NotOlderThan&timeoutSeconds=1",
        "labelSelector=bad%20selector",
        "fieldSelector=spec.nothing=1",
        "timeoutSeconds=x",
        "timeoutSeconds=1&limit=1",
        "timeoutSeconds=1&continue=x",
        "timeoutSeconds=1&allowWatchBookmarks=x",
    )
    await c.get_together(
        [*(f"{path}?watch=true&{query}" for query in queries), f"{path}?watch=1&timeoutSeconds=1"]
    )
    accepts = ("text/html", "application/json;stream=watch")
    target = f"{path}?watch=true&timeoutSeconds=1"
    await c.call_together([Ask("GET", target, None, {"accept": accept}) for accept in accepts])


@story
async def one_object_is_watched(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("a"))
    await c.post(path, widget("b"))
    async with c.watch(f"{path}?fieldSelector=metadata.name=a") as events:
        await events.opened()
        await c.patch(f"{path}/b", {"spec": {"size": 2}})
        await c.patch(f"{path}/a", {"spec": {"size": 2}})
        await c.delete(f"{path}/a")
        await events.take(3)


@story
async def a_watch_spans_namespaces(c: Caller) -> None:
    labels = {"story": c.namespace}
    async with c.watch(f"/apis/test.dev/v1/widgets?labelSelector=story={c.namespace}") as events:
        await events.opened()
        for namespace in (c.namespace, c.other):
            await c.post(in_namespace(namespace), widget("a", meta={"labels": labels}))
        await c.delete(in_namespace(c.namespace))
        await events.take(3)
    async with c.watch(f"{GAUGES_PATH}?labelSelector=story={c.namespace}") as events:
        await events.opened()
        await c.post(GAUGES_PATH, gauge(c.namespace, meta={"labels": labels}))
        await c.delete(f"{GAUGES_PATH}/{c.namespace}")
        await events.take(2)


@story
async def versions_are_watched_side_by_side(c: Caller) -> None:
    stable, beta = (in_namespace(c.namespace, "twins", version=version) for version in ("v1", "v1beta1"))
    async with c.watch(stable) as first, c.watch(beta) as second:
        await first.opened()
        await second.opened()
        await c.post(stable, twin("a", a="x"))
        await c.delete(f"{beta}/a")
        await first.take(2)
        await second.take(2)


@story
async def events_carry_tables_of_every_kind(c: Caller) -> None:
    path = in_namespace(c.namespace)
    for number, query in enumerate(
        (
            "includeObject=None",
            "includeObject=Object",
            "includeObject=Metadata",
            "includeObject=",
            f"includeObject=None&{_INITIAL}&allowWatchBookmarks=true",
            f"includeObject=Object&{_INITIAL}&allowWatchBookmarks=true",
        )
    ):
        async with c.watch(f"{path}?{query}", accept=TABLE) as events:
            await events.opened()
            if _INITIAL in query:
                await events.take(1)
            await c.post(path, widget(f"w{number}"))
            await c.patch(f"{path}/w{number}", {"spec": {"size": 2}})
            await c.delete(f"{path}/w{number}")
            await events.take(3)


@story
async def events_carry_metadata_of_what_was_there(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("a", meta={"labels": {"x": "1"}}))
    await c.post(path, widget("b", meta={"labels": {"x": "2"}}))
    for query in ("", f"{_INITIAL}&allowWatchBookmarks=true", "resourceVersion=0&allowWatchBookmarks=true"):
        async with c.watch(f"{path}?labelSelector=x=1&{query}", accept=PARTIAL) as events:
            await events.opened()
            await events.take(2 if _INITIAL in query else 1)
            await c.patch(f"{path}/b", {"metadata": {"labels": {"x": "1"}}})
            await c.patch(f"{path}/b", {"metadata": {"labels": {"x": "2"}}})
            await events.take(2)


@story
async def definitions_of_the_server_are_watched(c: Caller) -> None:
    async with c.watch(
        f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions?{_INITIAL}&allowWatchBookmarks=true"
        "&labelSelector=no=one",
        accept=PARTIAL,
    ) as events:
        await events.opened()
        await events.take(1)


@story
async def a_watch_ends_in_time(c: Caller) -> None:
    path = in_namespace(c.namespace)
    made = (await c.post(path, widget("a"))).json["metadata"]["resourceVersion"]
    opened: list[Events] = []
    queries = (f"resourceVersion={made}", "labelSelector=no=one", _INITIAL)
    async with AsyncExitStack() as stack:
        # At the same time: what there is has to come before the time is up, on a slow machine too.
        for query in ("", *(f"&{query}" for query in queries)):
            watch = c.watch(f"{path}?timeoutSeconds=3{query}")
            opened.append(await stack.enter_async_context(watch))
        for events in opened:
            await events.opened()
            await events.rest()


@story
async def the_past_is_forgotten(c: Caller) -> None:
    path = in_namespace(c.namespace)
    for name in ("a", "b", "c"):
        await c.post(path, widget(name))
    for number in range(12):
        note = f"{number}" + "x" * 100_000
        await c.patch(f"{path}/a", {"metadata": {"annotations": {"note": note}}}, quiet=True)
    last = (await c.patch(f"{path}/a", {"metadata": {"annotations": None}}, quiet=True)).json
    await c.peer.forget(int(last["metadata"]["resourceVersion"]))
    token = json.dumps({"v": "meta.k8s.io/v1", "rv": 1, "start": "a\0"}).encode()
    answer = await c.get(f"{path}?limit=1&continue={base64.urlsafe_b64encode(token).decode().rstrip('=')}")
    assert answer.status == 410
    await c.get(f"{path}?limit=1&continue={answer.json['metadata']['continue']}")
    for query in ("resourceVersion=1", "resourceVersion=1&limit=1"):
        await c.get(f"{path}?{query}")
        await c.get(f"{path}?{query}&resourceVersionMatch=Exact")
        await c.get(f"{path}?{query}&resourceVersionMatch=NotOlderThan")
    for query in ("", "&allowWatchBookmarks=true", "&labelSelector=x"):
        async with c.watch(f"{path}?resourceVersion=1&timeoutSeconds=5{query}") as events:
            await events.opened()
            await events.rest()
