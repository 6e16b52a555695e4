"""Stories about creating, replacing and deleting."""

from __future__ import annotations

from typing import Any

from conformance.compare import story
from conformance.kinds import GAUGES_PATH, Json, gauge, in_namespace, twin, widget
from conformance.peers import Caller

_BAD_SPECS: tuple[Any, ...] = (
    {},
    {"size": "1"},
    {"size": 0},
    {"size": 101},
    {"size": 1.5},
    {"size": 2.0},
    {"size": True},
    {"size": None},
    {"size": 1, "colour": "pink"},
    {"size": 1, "colour": 5},
    {"size": 1, "colour": None},
    {"size": 1, "owner": "x" * 21},
    {"size": 1, "note": None},
    {"size": 1, "ratio": 0.3},
    {"size": 1, "ratio": 1},
    {"size": 1, "code": "A1"},
    {"size": 1, "since": "yesterday"},
    {"size": 1, "since": "2026-01-01T00:00:00Z"},
    {"size": 1, "since": "2026-01-01T00:00:00.123456789+02:00"},
    {"size": 1, "since": 5},
    {"size": 1, "port": 1.5},
    {"size": 1, "port": "http"},
    {"size": 1, "port": 80},
    {"size": 1, "tags": ["a", "b", "c", "d", "e"]},
    {"size": 1, "tags": ["a", "a"]},
    {"size": 1, "tags": "a"},
    {"size": 1, "tags": [1]},
    {"size": 1, "parts": [{"name": "a"}, {"name": "a"}]},
    {"size": 1, "parts": [{"count": 2}]},
    {"size": 1, "parts": [{"name": "a", "labels": {"x": 1}}]},
    {"size": 1, "limits": {"cpu": "many"}},
    {"size": 1, "limits": {"cpu": None}},
    {"size": 1, "nested": None},
    {"size": 1, "nested": {"depth": None}},
    {"size": 1, "free": {"anything": {"goes": [1, None, "x"]}, "known": {"a": "b", "c": "d"}}},
    {"size": 1, "choice": {}},
    {"size": 1, "choice": {"a": "1", "b": "2"}},
    {"size": 1, "choice": {"a": "1"}},
    {"size": 1, "embedded": {"spec": {"x": 1}}},
    {
        "size": 1,
        "embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"x": 1, "y": 2}},
    },
    {"size": 1, "embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "X!", "bad": 1}}},
    {"size": 1, "replicas": 99999999999},
    {"size": "x", "colour": 7, "tags": ["a", "a"], "zzz": 1, "parts": [{"x": 1}]},
    "text",
    [],
    None,
    5,
)


@story
async def specs_are_judged_by_their_schema(c: Caller) -> None:
    path = in_namespace(c.namespace)
    for number, spec in enumerate(_BAD_SPECS):
        body = {**widget(f"w{number}"), "spec": spec}
        for strictness in ("Strict", "Warn", "Ignore"):
            await c.post(f"{path}?fieldValidation={strictness}&dryRun=All", body)


_BAD_METADATA: tuple[Any, ...] = (
    {},
    None,
    "x",
    {"name": ""},
    {"name": None},
    {"name": 5},
    {"name": "Upper"},
    {"name": "a.b-c"},
    {"name": "-a"},
    {"name": "a_b"},
    {"name": "a/b"},
    {"name": "."},
    {"name": "a", "labels": {"x": "y"}},
    {"name": "a", "labels": {"x": 1}},
    {"name": "a", "labels": {"bad key": "y", "x": "bad value", "x/y/z": "a", "": "b"}},
    {"name": "a", "labels": None},
    {"name": "a", "labels": []},
    {"name": "a", "annotations": {"x": "any thing"}},
    {"name": "a", "annotations": {"bad key": "y", "Upper.Case/x": "y"}},
    {"name": "a", "annotations": {"x": "y" * 262145}},
    {"name": "a", "finalizers": ["x"]},
    {"name": "a", "finalizers": ["x.y/z"]},
    {"name": "a", "finalizers": ["x y/z", ""]},
    {"name": "a", "finalizers": ["foregroundDeletion", "orphan", "foregroundDeletion"]},
    {"name": "a", "finalizers": ["foregroundDeletion", "orphan"]},
    {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "b"}]},
    {"name": "a", "ownerReferences": [{}]},
    {"name": "a", "ownerReferences": "x"},
    {"name": "a", "namespace": "elsewhere"},
    {"name": "a", "namespace": 5},
    {"name": "a", "resourceVersion": "5"},
    {"name": "a", "resourceVersion": 5},
    {"name": "a", "uid": "5"},
    {"name": "a", "generation": 7, "creationTimestamp": "2020-01-01T00:00:00Z"},
    {"name": "a", "generation": "7"},
    {"name": "a", "generation": -1},
    {"name": "a", "creationTimestamp": "never"},
    {"name": "a", "creationTimestamp": None},
    {"name": "a", "deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5},
    {"name": "a", "selfLink": "/x", "unknown": 1},
    {"name": "a", "managedFields": [{"manager": "x"}]},
)


@story
async def metadata_is_judged(c: Caller) -> None:
    path = in_namespace(c.namespace)
    for meta in _BAD_METADATA:
        body = {**widget("x"), "metadata": meta}
        for strictness in ("Strict", "Warn"):
            await c.post(f"{path}?fieldValidation={strictness}&dryRun=All", body)


@story
async def metadata_in_no_namespace_is_judged(c: Caller) -> None:
    for meta in ({"name": "a", "namespace": "x"}, {"name": "a", "namespace": ""}, {"generateName": "a"}, {}):
        await c.post(f"{GAUGES_PATH}?dryRun=All", {**gauge("x"), "metadata": meta})


@story
async def bodies_are_of_a_media_type(c: Caller) -> None:
    path = in_namespace(c.namespace) + "?dryRun=All"
    yaml = b"apiVersion: test.dev/v1\nkind: Widget\nmetadata:\n  name: ya\nspec:\n  size: 3\n"
    await c.post(path, yaml, content_type="text/plain")
    await c.post(path, yaml, content_type="application/json")
    await c.post(path, widget("a"), content_type="application/json; charset=utf-8")
    await c.post(path, b"", content_type="application/json")
    head = b'{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"a","name":"b"}'
    twice = head + b',"spec":{"size":1,"size":2,"x":1}}'
    for strictness in ("Strict", "Warn", "Ignore", "Other", ""):
        await c.post(f"{path}&fieldValidation={strictness}", twice)


@story
async def types_must_fit_the_path(c: Caller) -> None:
    path = in_namespace(c.namespace) + "?dryRun=All"
    good = widget("a")
    for change in (
        {"kind": "Gadget"},
        {"kind": ""},
        {"apiVersion": "test.dev/v2"},
        {"apiVersion": "v1"},
        {"apiVersion": ""},
        {"apiVersion": "other/v1"},
        {"kind": "Twin"},
        {"apiVersion": 5},
        {"kind": None},
        {"extra": {"a": 1}},
        {"spec": None},
        {"status": {"phase": "x"}},
        {"status": "x"},
        {"status": 5},
    ):
        await c.post(path, {**good, **change})
        await c.post(path + "&fieldValidation=Strict", {**good, **change})
    for missing in ("kind", "apiVersion", "metadata", "spec"):
        await c.post(path, {name: value for name, value in good.items() if name != missing})


@story
async def an_object_is_created_once(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("a", colour="blue", tags=["x"]))
    await c.post(path, widget("a"))
    await c.post(path, widget("a", size=0))
    await c.post(f"{path}?dryRun=All", widget("a"))
    await c.post(f"{path}?dryRun=Some", widget("b"))
    await c.post(f"{path}?dryRun=All&dryRun=All", widget("b"))
    await c.post(f"{path}?dryRun=", widget("bb"))
    await c.post(f"{path}?fieldManager=me", widget("c"))
    await c.post(f"{path}?fieldManager=" + "m" * 129, widget("d"))
    await c.post(f"{path}?fieldManager=a%01b", widget("d"))
    await c.post(f"{path}?pretty=true", widget("e"))
    await c.get(path)
    await c.post(GAUGES_PATH, gauge(f"{c.namespace}-a", x=1, y={"z": [1, None]}))
    await c.post(GAUGES_PATH, gauge(f"{c.namespace}-a"))
    await c.get(f"{GAUGES_PATH}/{c.namespace}-a")


@story
async def names_are_generated(c: Caller) -> None:
    path = in_namespace(c.namespace)
    for prefix in ("a-", "long" + "x" * 80, "b."):
        body = widget("x")
        body["metadata"] = {"generateName": prefix}
        await c.post(path, body)
        await c.post(f"{path}?dryRun=All", body)
    await c.post(path, {**widget("x"), "metadata": {"generateName": "a-", "name": "named"}})


@story
async def an_object_is_replaced(c: Caller) -> None:
    path = in_namespace(c.namespace)
    made = (await c.post(path, widget("a", meta={"labels": {"x": "y"}, "annotations": {"k": "v"}}))).json
    target = f"{path}/a"
    await c.put(target, made)
    await c.put(target, {**made, "spec": {"size": 2}})
    await c.put(target, {**made, "spec": {"size": 3}})
    now = (await c.get(target)).json
    await c.put(target, {**now, "spec": {**now["spec"], "zzz": 1}})
    await c.put(f"{target}?fieldValidation=Strict", {**now, "spec": {**now["spec"], "zzz": 1}})
    await c.put(target, {**now, "status": {"phase": "ignored"}})
    now = (await c.get(target)).json
    meta = now["metadata"]
    changes: tuple[Json, ...] = (
        {"labels": {"x": "z"}},
        {"labels": None},
        {"annotations": {}},
        {"uid": "other"},
        {"uid": ""},
        {"name": "b"},
        {"name": ""},
        {"namespace": "other"},
        {"namespace": ""},
        {"resourceVersion": ""},
        {"resourceVersion": "abc"},
        {"resourceVersion": "1"},
        {"resourceVersion": "999999999"},
        {"generation": 77},
        {"creationTimestamp": "2020-01-01T00:00:00Z"},
        {"creationTimestamp": None},
        {"deletionTimestamp": "2020-01-01T00:00:00Z"},
        {"generateName": "x-"},
        {"finalizers": ["bad finalizer"]},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "n", "uid": "u"}]},
        {"managedFields": [{}]},
    )
    for change in changes:
        await c.put(f"{target}?dryRun=All", {**now, "metadata": {**meta, **change}})
    await c.put(f"{target}?dryRun=All", {**now, "spec": {"size": 0}})
    await c.put(f"{target}?dryRun=All", {**now, "kind": "Gadget"})
    await c.put(f"{target}?dryRun=All", {**now, "apiVersion": "test.dev/v9"})
    await c.put(f"{target}?dryRun=All", {})
    await c.put(f"{target}?dryRun=All", b"[]")
    await c.put(f"{path}/missing", {**now, "metadata": {"name": "missing"}})
    await c.put(f"{path}/missing", {**now, "metadata": {**meta, "name": "missing"}})
    await c.put(path, now)
    await c.get(target)


@story
async def status_is_written_apart(c: Caller) -> None:
    path = in_namespace(c.namespace)
    made = (await c.post(path, {**widget("a"), "status": {"phase": "no"}})).json
    target = f"{path}/a/status"
    await c.get(target)
    changed = {**made, "status": {"phase": "yes", "zzz": 1}, "spec": {"size": 50}}
    changed["metadata"] = {**made["metadata"], "labels": {"new": "label"}, "annotations": {"new": "one"}}
    written = (await c.put(target, changed)).json
    await c.put(target, changed)
    await c.put(target, {**written, "status": {"phase": 5}})
    await c.put(target, {**written, "status": None})
    await c.patch(
        target, {"status": {"ready": True}, "spec": {"size": 9}, "metadata": {"labels": {"p": "q"}}}
    )
    await c.patch(target, {"spec": {"size": 9}})
    await c.patch(target, [{"op": "replace", "path": "/status/ready", "value": False}], "json")
    await c.patch(target, {"metadata": {"finalizers": ["a.b/c"]}})
    await c.post(target, written)
    await c.delete(target)
    await c.get(f"{path}/a")
    await c.put(f"{path}/missing/status", written)
    await c.get(f"{path}/missing/status")
    await c.get(f"{GAUGES_PATH}/x/status")
    await c.get(f"{path}/a/nothing")
    await c.put(f"{path}/a/nothing", made)


@story
async def without_the_subresource_status_is_a_field(c: Caller) -> None:
    name = f"{c.namespace}-a"
    made = (await c.post(GAUGES_PATH, {**gauge(name, a=1), "status": {"b": 2}})).json
    made = (await c.put(f"{GAUGES_PATH}/{name}", {**made, "status": {"b": 3}})).json
    await c.patch(f"{GAUGES_PATH}/{name}", {"status": {"c": 1}})
    await c.patch(f"{GAUGES_PATH}/{name}", {"metadata": {"labels": {"x": "y"}}})
    await c.delete(f"{GAUGES_PATH}/{name}")


@story
async def the_scale_is_read_and_written(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("none"))
    await c.get(f"{path}/none/scale")
    await c.post(path, widget("a", replicas=3))
    await c.patch(f"{path}/a/status", {"status": {"replicas": 2, "selector": "x=y"}})
    scale = (await c.get(f"{path}/a/scale")).json
    scale["spec"] = {"replicas": 5}
    await c.put(f"{path}/a/scale", scale)
    await c.put(f"{path}/a/scale", scale)
    await c.patch(f"{path}/a/scale", {"spec": {"replicas": 7}})
    await c.patch(f"{path}/a/scale", {"spec": {"replicas": -1}})
    await c.patch(f"{path}/a/scale", {"spec": {"replicas": "x"}})
    await c.patch(f"{path}/a/scale", [{"op": "replace", "path": "/spec/replicas", "value": 8}], "json")
    await c.get(f"{path}/a")
    await c.get(f"{path}/missing/scale")
    await c.delete(f"{path}/a/scale")


@story
async def objects_are_deleted(c: Caller) -> None:
    path = in_namespace(c.namespace)
    for name in "abc":
        await c.post(path, widget(name))
    await c.delete(f"{path}/a")
    await c.delete(f"{path}/a")
    await c.get(f"{path}/a")
    await c.delete(f"{path}/b", {"preconditions": {"uid": "other"}})
    await c.delete(f"{path}/b", {"preconditions": {"resourceVersion": "1"}})
    metadata = (await c.get(f"{path}/b")).json["metadata"]
    right = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    await c.delete(f"{path}/b", {"preconditions": right})
    await c.delete(f"{path}/c", b"[]")
    await c.delete(f"{path}/c", b"{}", content_type="text/plain")
    # The reference has no garbage collector that would let go of what is deleted in the foreground.
    await c.delete(f"{path}/c?propagationPolicy=Background", {"propagationPolicy": "Foreground"})


@story
async def finalizers_hold_an_object(c: Caller) -> None:
    path = in_namespace(c.namespace)
    await c.post(path, widget("a", meta={"finalizers": ["x.y/one", "x.y/two"]}))
    await c.delete(f"{path}/a?dryRun=All")
    dying = (await c.delete(f"{path}/a")).json
    await c.delete(f"{path}/a")
    await c.post(path, widget("a"))
    await c.put(f"{path}/a", {**dying, "spec": {"size": 5}})
    await c.patch(f"{path}/a", {"metadata": {"finalizers": ["x.y/one", "x.y/two", "x.y/three"]}})
    await c.patch(f"{path}/a", {"metadata": {"deletionTimestamp": None}})
    await c.patch(f"{path}/a", {"metadata": {"finalizers": ["x.y/two"]}})
    await c.patch(f"{path}/a?dryRun=All", {"metadata": {"finalizers": None}})
    await c.get(f"{path}/a")
    await c.patch(f"{path}/a", {"metadata": {"finalizers": []}})
    await c.get(f"{path}/a")
    await c.post(path, widget("b", meta={"finalizers": ["x.y/one"]}))
    # Never in the foreground: the reference has no garbage collector, and ours would write to the object too.
    dying = (await c.delete(f"{path}/b", {"propagationPolicy": "Background"})).json
    dying["metadata"]["finalizers"] = []
    await c.put(f"{path}/b", dying)
    await c.get(f"{path}/b")
    await c.post(path, widget("c", meta={"finalizers": ["x.y/one"]}))
    await c.delete(f"{path}/c?propagationPolicy=Background")
    await c.patch(f"{path}/c", {"metadata": {"finalizers": None}, "spec": {"size": 3}})
    await c.get(f"{path}/c")


@story
async def versions_are_served_side_by_side(c: Caller) -> None:
    stable, beta = (in_namespace(c.namespace, "twins", version=version) for version in ("v1", "v1beta1"))
    await c.post(stable, twin("a", a="x"))
    await c.get(f"{beta}/a")
    await c.post(beta, twin("b", version="v1beta1", a="y", b="dropped"))
    await c.get(f"{stable}/b")
    await c.get(stable)
    await c.get(beta)
    await c.patch(f"{beta}/a", {"spec": {"a": "z"}})
    await c.get(f"{stable}/a")
    await c.post(stable, twin("c", version="v1beta1"))
    await c.get(in_namespace(c.namespace, "twins", version="v1alpha1"))
    await c.delete(f"{beta}/a")
    await c.delete(beta)
