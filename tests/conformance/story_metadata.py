"""Stories about metadata that clients send, and about the options of their writes."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from conformance.compare import story
from conformance.kinds import Json, in_namespace, widget
from conformance.peers import Caller

_OPTIONS = (
    "fieldManager=",
    "fieldManager=" + "m" * 128,
    "fieldManager=" + "m" * 129,
    "fieldManager=" + quote("ü" * 65),
    "fieldManager=" + quote("é\x7f\t"),
    "fieldManager=a&fieldManager=b%01",
    "fieldValidation=",
    "fieldValidation=strict",
    "fieldValidation=Strict&fieldValidation=Bad",
    "dryRun=Some",
    "dryRun=All&dryRun=All",
    "dryRun=All&dryRun=Some",
    "dryRun=",
    "fieldManager=a%01&dryRun=None&fieldValidation=Never",
    "force=true",
    "force=false",
    "force=",
    "timeout=abc",
    "timeout=5s",
    "timeout=0s",
    "timeout=-1s",
    "timeout=5",
    "timeout=",
    "pretty=false",
    "unknown=1",
)


@story
async def options_of_writes_are_judged(c: Caller) -> None:
    path = in_namespace(c.namespace)
    made = (await c.post(path, widget("a"))).json
    for options in _OPTIONS:
        dry = options if "dryRun" in options else f"dryRun=All&{options}"
        await c.post(f"{path}?{dry}", widget("b"))
        await c.put(f"{path}/a?{dry}", made)
        await c.put(f"{path}/a/status?{dry}", made)
        await c.patch(f"{path}/a?{dry}", {"spec": {"size": 2}})
        await c.patch(f"{path}/a?{dry}", [{"op": "add", "path": "/spec/size", "value": 3}], "json")
        await c.delete(f"{path}/a?{dry}")
        await c.delete(f"{path}?{dry}")
    await c.get(path)


_NAMES: tuple[Json, ...] = (
    {"name": "n" * 253},
    {"name": "n" * 254},
    {"name": "N" * 254},
    {"name": ".".join(["n" * 63] * 4)},
    {"name": "n" * 64 + ".b"},
    {"name": "a..b"},
    {"name": "ünder"},
    {"name": "a", "generateName": "b-"},
    {"name": "a", "generateName": "B_"},
    {"name": "", "generateName": "b-"},
    {"generateName": "b" * 300},
    {"generateName": "B" * 300},
    {"generateName": "-"},
    {"generateName": "a--"},
    {"generateName": "a_-"},
    {"generateName": ""},
    {"name": "a", "labels": {"k" * 63: "v" * 63, "d.e/" + "k" * 63: ""}},
    {"name": "a", "labels": {"k" * 64: "v" * 64}},
    {"name": "a", "labels": {"_" * 64: "-" * 64}},
    {"name": "a", "labels": {"d" * 254 + "/k": "v"}},
    {"name": "a", "labels": {"D!" * 128 + "/k": "v"}},
    {"name": "a", "labels": {"/k": "v", "d/": "v"}},
    {"name": "a", "labels": {"ü": "ü"}},
    {"name": "a", "labels": {"a": None}},
    {"name": "a", "labels": {"": ""}},
    {"name": "a", "annotations": {"a": None, "b": ""}},
    {"name": "a", "annotations": {"k": "v" * 262143}},
    {"name": "a", "annotations": {"k": "v" * 262144}},
    {"name": "a", "annotations": {"k": "ü" * 131072}},
    {"name": "a", "annotations": {"BIG.Domain/Key": "x", "-/": "y", "a/b/c": "z"}},
    {"name": "a", "annotations": {"k": 5}},
    {"name": "a", "annotations": [1]},
    {"name": "a", "finalizers": [None]},
    {"name": "a", "finalizers": [5]},
    {"name": "a", "finalizers": {"a": "b"}},
    {"name": "a", "finalizers": ["a.b/c", "a.b/c"]},
    {"name": "a", "finalizers": ["a.b", "kubernetes", "orphan", "x/y", "Upper", "/x"]},
    {"name": "a", "generation": 1.5},
    {"name": "a", "generation": 1e3},
    {"name": "a", "generation": 99999999999999999999},
    {"name": "a", "deletionGracePeriodSeconds": "5"},
    {"name": "a", "deletionGracePeriodSeconds": -5},
    {"name": "a", "selfLink": 5},
    {"name": "a", "uid": 5},
    {"name": True},
    {"name": ["a"]},
    {"name": {"a": 1}},
    {"name": 5, "labels": 5, "annotations": {"x": []}},
)


@story
async def names_and_labels_have_limits(c: Caller) -> None:
    path = in_namespace(c.namespace)
    for meta in _NAMES:
        await c.post(f"{path}?dryRun=All", {**widget("x"), "metadata": meta})


_TIMES: tuple[Any, ...] = (
    "2020-01-01T00:00:00Z",
    "2020-01-01T00:00:00.123456789Z",
    "2020-01-01T00:00:00+01:00",
    "2020-01-01T00:00:00",
    "2020-01-01 00:00:00Z",
    "2020-01-01",
    "2020-13-01T00:00:00Z",
    "2020-00-01T00:00:00Z",
    "2020-01-32T00:00:00Z",
    "2021-02-29T00:00:00Z",
    "2020-01-01T24:00:00Z",
    "2020-01-01T00:60:00Z",
    "2020-01-01T00:00:60Z",
    "2020-01-01T00:00:00Zulu",
    "20-01-01T00:00:00Z",
    "",
    5,
    {},
)


@story
async def times_are_read(c: Caller) -> None:
    path = in_namespace(c.namespace)
    for time in _TIMES:
        await c.post(f"{path}?dryRun=All", widget("a", meta={"creationTimestamp": time}))
    await c.post(path, widget("a"))
    for time in _TIMES:
        await c.patch(f"{path}/a?dryRun=All", {"metadata": {"deletionTimestamp": time}})


def _owner(uid: str, /, **more: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "name": f"p-{uid}", "uid": uid, **more}


_OWNERS: tuple[Any, ...] = (
    [_owner("1"), _owner("1")],
    [_owner("1"), _owner("2"), _owner("1"), _owner("2"), _owner("1")],
    [_owner("1"), _owner("1", name="other")],
    [_owner("1", controller=True), _owner("1")],
    [_owner("1", controller=True), _owner("2", controller=True), _owner("3", controller=True)],
    [_owner("1", controller=False, blockOwnerDeletion=True), _owner("2", controller=True)],
    [_owner("1", controller=True, blockOwnerDeletion=False), _owner("2", controller=True)],
    [_owner("1", controller=None, kind=None)],
    [_owner("1", controller="x")],
    [_owner("1", uid=5)],
    [_owner("1", more=1), _owner("2", name="")],
    [_owner("1", apiVersion="events.k8s.io/v1", kind="Event"), _owner("2", kind="Event")],
    [_owner("1", apiVersion="a/")],
    [_owner("1", apiVersion="/v1")],
    [None],
    [5],
    ["x"],
    {},
)


@story
async def owners_are_judged(c: Caller) -> None:
    path = in_namespace(c.namespace)
    made = (await c.post(path, widget("a"))).json
    for owners in _OWNERS:
        await c.post(f"{path}?dryRun=All", widget("b", meta={"ownerReferences": owners}))
        meta = {**made["metadata"], "ownerReferences": owners}
        await c.put(f"{path}/a?dryRun=All", {**made, "metadata": meta})
        await c.patch(f"{path}/a?dryRun=All", {"metadata": {"ownerReferences": owners}})


def _entry(**more: Any) -> Json:
    return {
        "manager": "other",
        "operation": "Update",
        "apiVersion": "test.dev/v1",
        "time": "2020-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:size": {}}},
        **more,
    }


_MANAGED: tuple[Any, ...] = (
    [],
    [{}],
    None,
    [None],
    [_entry()],
    [_entry(), _entry(manager="third", operation="Apply")],
    [_entry(), _entry()],
    [_entry(operation="Merge")],
    [_entry(operation="")],
    [_entry(fieldsType="FieldsV2")],
    [_entry(fieldsV1=None)],
    [_entry(fieldsV1="x")],
    [_entry(fieldsV1={"size": {}})],
    [_entry(fieldsV1={"f:unknown": {}})],
    [_entry(fieldsV1={})],
    [_entry(apiVersion="")],
    [_entry(apiVersion="test.dev/v9")],
    [_entry(time="never")],
    [_entry(time=None)],
    [_entry(manager=5)],
    [_entry(manager="m" * 129)],
    [_entry(manager="a\x01b")],
    [_entry(subresource="s" * 257)],
    [_entry(subresource="status")],
    [_entry(more=1)],
    [_entry(), _entry(manager="third", apiVersion="test.dev/v9")],
    [_entry(fieldsV1={"f:spec": {"f:unknown": {}}}), _entry(manager="third", apiVersion="test.dev/v9")],
    [_entry(fieldsV1={}), _entry(manager="third", apiVersion="test.dev/v9")],
    [_entry(fieldsV1={}), _entry(manager="third", fieldsV1={"f:metadata": {"f:labels": {}}})],
    [_entry(manager="m" * 129, fieldsV1={"f:spec": {"f:unknown": {}}}), _entry(subresource="s" * 300)],
    {},
    "x",
    [5],
)


@story
async def managed_fields_are_sent(c: Caller) -> None:
    path = in_namespace(c.namespace)
    made = (await c.post(path, widget("a"))).json
    for number, entries in enumerate(_MANAGED):
        await c.post(path, widget(f"b{number}", meta={"managedFields": entries}))
        meta = {**made["metadata"], "managedFields": entries}
        await c.put(f"{path}/a?dryRun=All&fieldValidation=Strict", {**made, "metadata": meta})
        await c.put(f"{path}/a?dryRun=All", {**made, "metadata": meta, "spec": {"size": 5}})
        await c.patch(f"{path}/a?dryRun=All", {"metadata": {"managedFields": entries}, "spec": {"size": 5}})


@story
async def metadata_is_changed(c: Caller) -> None:
    path = in_namespace(c.namespace)
    made = (await c.post(path, widget("x", meta={"name": None, "generateName": "gen-"}))).json
    name = made["metadata"]["name"]
    without = {key: value for key, value in made["metadata"].items() if key != "generateName"}
    await c.put(f"{path}/{name}?dryRun=All", {**made, "metadata": without})
    await c.put(f"{path}/{name}?dryRun=All", {**made, "metadata": {**without, "generateName": "other-"}})
    await c.put(f"{path}/{name}?dryRun=All", {**made, "metadata": {**without, "generateName": "B_"}})
    await c.patch(f"{path}/{name}?dryRun=All", {"metadata": {"generateName": None}})
    created = (await c.post(path, widget("a", meta={"finalizers": ["x.y/z"]}))).json
    changes: tuple[Json, ...] = (
        {"deletionTimestamp": "2020-01-01T00:00:00Z"},
        {"deletionGracePeriodSeconds": 5},
        {"deletionGracePeriodSeconds": 0},
        {"generation": 1},
        {"generation": -1},
        {"creationTimestamp": "2020-01-01T00:00:00Z"},
        {"selfLink": "/x"},
        {"uid": ""},
        {"uid": "x"},
        {"resourceVersion": "0"},
        {"resourceVersion": "x"},
        {"resourceVersion": ""},
        {"namespace": ""},
        {"namespace": "x"},
        {"name": ""},
        {"name": "x"},
        {"finalizers": ["x.y/z", "plain", "with.dot"]},
        {"finalizers": []},
        {"labels": {"a": None}},
    )
    for change in changes:
        await c.put(f"{path}/a?dryRun=All", {**created, "metadata": {**created["metadata"], **change}})
        await c.patch(f"{path}/a?dryRun=All", {"metadata": change})
    dying = (await c.delete(f"{path}/a")).json
    for change in changes:
        await c.put(f"{path}/a?dryRun=All", {**dying, "metadata": {**dying["metadata"], **change}})


@story
async def a_revision_cannot_be_created(c: Caller) -> None:
    path = in_namespace(c.namespace)
    for number, revision in enumerate(("5", "0", "", "x", "-1", "99999999999999999999", "007")):
        await c.post(f"{path}?dryRun=All", widget(f"a{number}", meta={"resourceVersion": revision}))
        await c.post(path, widget(f"a{number}", meta={"resourceVersion": revision}))
    await c.get(path)
